"""Copies the rollups of the first DISTINCT machines of an invented fleet until there are HOSTS, for fleet.py.

    copy_rollups.py ROLLUPS DISTINCT HOSTS

Copies differ in the names of the host and the trace: in the file's name and in the first two columns.
"""

import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as parquet

rollups, distinct, hosts = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


def name(machine):
    return f"web-{machine:04}", f"{machine + 1:032x}"


for machine in range(distinct):
    host, trace = name(machine)
    for path in rollups.glob(f"*/date=*/{host}-{trace}.parquet"):
        file = parquet.ParquetFile(path)
        texts = [field.name for field in file.schema_arrow if pa.types.is_string(field.type)]
        table = parquet.ParquetFile(path, read_dictionary=texts).read()
        for copy in range(machine + distinct, hosts, distinct):
            for at, value in enumerate(name(copy)):
                constant = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(table)), [value])
                table = table.set_column(at, table.column_names[at], constant)
            to = path.with_name("-".join(name(copy)) + ".parquet")
            parquet.write_table(table, to, compression="zstd", compression_level=1, store_schema=False)
