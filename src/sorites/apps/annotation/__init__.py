"""People who answer questions about pictures: tasks, who gets which picture, the page, and what
follows from the answers.
"""
