"""Which programs of a folder run on the simulated chip, and why the others do not.

    python -m tilelang.conformance DIR --out report

runs every script and every pytest case below DIR, each in a process of its own, and writes report/report.txt, .json and
.html. Programs are not changed: see tilelang.sim. An interrupted run goes on where it stopped.
"""
