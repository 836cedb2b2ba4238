"""Two models on the same images: what changed on each dial, whether chance explains it, and a
gate that says no.
"""
