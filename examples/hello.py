"""A first program: how often is lite0 right under each shift, and where on each dial does it fail?"""

import sorites

if __name__ == "__main__":
    table = sorites.run("demo", models=["lite0"], limit=12)
    print(sorites.accuracy(table, by=["model", "shift"]))
    print(sorites.failure_severity(table))
    print("wrote", sorites.report(table, "report.html"))
