-- Decodes every value of every column of the events once. For DuckDB, in the directory of trace.parquet.
SELECT count(COLUMNS(['event', 'mode', 'state', 'call', 'syscall'])), sum(COLUMNS(* EXCLUDE (event, mode, state, call, syscall))) FROM 'trace.parquet';
