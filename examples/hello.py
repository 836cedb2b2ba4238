"""A first program: how often is lite0 right under each shift, and where on each dial does it fail?"""

import sorites

if __name__ == "__main__":
    run = sorites.run("demo", models=["lite0"], limit=12)
    print(sorites.accuracy(run, by=["model", "shift"]))
    print(sorites.failure_severity(run))
    print("wrote", sorites.report(run, "report.html"))
