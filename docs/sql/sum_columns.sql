-- Every value of every column of the events, decoded and looked at once. For DuckDB, in the directory of trace.parquet.
SELECT count(event), count(mode), sum(COLUMNS(* EXCLUDE (event, mode))) FROM 'trace.parquet';
