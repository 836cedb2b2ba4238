"""People who answer questions about images: tasks, who gets which image, the page, and what
follows from the answers.
"""
