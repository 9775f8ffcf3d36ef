"""Opens the tables of a trace with pyarrow, pandas, polars and DuckDB, and compares types, rows, nulls and sums.

    open_everywhere.py EXPECTED.json

The JSON is a list of tables: {"path", "rows", "columns": [{"name", "type"}]}, with the types of docs/trace-format.md.
Prints one line per table; any difference is an exception.
"""

import json
import sys

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet

ARROW = {"int32": "int32", "int64": "int64", "string": "string", "boolean": "bool"}
POLARS = {"int32": polars.Int32, "int64": polars.Int64, "string": polars.String, "boolean": polars.Boolean}
DUCKDB = {"int32": "INTEGER", "int64": "BIGINT", "string": "VARCHAR", "boolean": "BOOLEAN"}


def equal(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, expected {expected!r}")


def check(table):
    path, columns = table["path"], table["columns"]
    names = [column["name"] for column in columns]
    plain = [column for column in columns if column["type"] in ARROW]

    arrow = pyarrow.parquet.read_table(path)
    equal(arrow.column_names, names, f"{path} in pyarrow")
    equal(arrow.num_rows, table["rows"], f"rows of {path} in pyarrow")
    nulls = {name: arrow.column(name).null_count for name in names}

    pandas_table = pandas.read_parquet(path, engine="pyarrow", dtype_backend="pyarrow")
    equal(len(pandas_table), table["rows"], f"rows of {path} in pandas")

    polars_table = polars.read_parquet(path)
    equal(polars_table.columns, names, f"{path} in polars")
    equal(polars_table.height, table["rows"], f"rows of {path} in polars")

    connection = duckdb.connect()
    described = connection.execute(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    types = {row[0]: row[1] for row in described}
    equal(list(types), names, f"{path} in DuckDB")

    for column in columns:
        name, kind = column["name"], column["type"]
        if kind == "list of frame":
            assert pyarrow.types.is_list(arrow.schema.field(name).type), arrow.schema
            assert isinstance(polars_table.schema[name], polars.List), polars_table.schema
            assert types[name].startswith("STRUCT(") and types[name].endswith("[]"), types[name]
            continue
        equal(str(arrow.schema.field(name).type), ARROW[kind], f"{name} of {path} in pyarrow")
        equal(pandas_table[name].dtype, pandas.ArrowDtype(arrow.schema.field(name).type), f"{name} of {path} in pandas")
        equal(polars_table.schema[name], POLARS[kind], f"{name} of {path} in polars")
        equal(types[name], DUCKDB[kind], f"{name} of {path} in DuckDB")
        equal(int(pandas_table[name].isna().sum()), nulls[name], f"nulls of {name} of {path} in pandas")
        equal(polars_table[name].null_count(), nulls[name], f"nulls of {name} of {path} in polars")

    counts = ", ".join(f'count("{name}")' for name in names)
    found = connection.execute(f"SELECT count(*), {counts} FROM '{path}'").fetchone()
    equal(found, (table["rows"], *(table["rows"] - nulls[name] for name in names)), f"values of {path} in DuckDB")
    for column in plain:
        if column["type"].startswith("int"):
            name = column["name"]
            total = sum(value for value in arrow.column(name).to_pylist() if value is not None)
            equal(int(pandas_table[name].dropna().map(int).sum() if len(pandas_table) else 0), total, f"{name} in pandas")
            equal(polars_table[name].cast(polars.Int128).sum(), total, f"{name} in polars")
            found = connection.execute(f'SELECT coalesce(sum("{name}"), 0) FROM \'{path}\'').fetchone()[0]
            equal(int(found), total, f"{name} in DuckDB")
    print(f"{path}: {table['rows']} rows, {len(names)} columns")


for table in json.load(open(sys.argv[1])):
    check(table)
print(f"pyarrow {pyarrow.__version__}, pandas {pandas.__version__}, polars {polars.__version__}, duckdb {duckdb.__version__}")
