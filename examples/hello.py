"""Two models' worth of questions in a few lines: how often is lite0 right, and where does each dial break it?"""

import sorites

if __name__ == "__main__":
    table = sorites.run("demo", models=["lite0"], limit=12)
    print(sorites.accuracy(table, by=["model", "shift"]))
    print(sorites.failure_point(table))
    print("wrote", sorites.report(table, "report.html"))
