"""Runs the code cells of a notebook in the directory of a trace, as a notebook would, and prints some of its tables as JSON.

    notebook.py NOTEBOOK.ipynb DIRECTORY TABLE...
"""

import json
import os
import sys

notebook, directory, *tables = sys.argv[1:]
with open(notebook) as file:
    cells = json.load(file)["cells"]
os.chdir(directory)
names = {"__name__": "__main__"}
# What the cells print is for people, and goes where people look.
stdout, sys.stdout = sys.stdout, sys.stderr
for number, cell in enumerate(cells):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
sys.stdout = stdout
json.dump({table: names[table].to_dicts() for table in tables}, sys.stdout)
