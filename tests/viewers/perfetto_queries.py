"""Asks Perfetto's trace_processor, as the package of PyPI brings it, about a trace.

    perfetto_queries.py TRACE QUERY...

Prints one JSON array per query: an array of rows, each an array of cells. Ends with 3 if the package can't get its trace_processor,
which it downloads when it is first used.
"""

import json
import subprocess
import sys
import urllib.error

from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig


def main():
    trace, *queries = sys.argv[1:]
    try:
        processor = TraceProcessor(trace=trace, config=TraceProcessorConfig(load_timeout=60))
    except (subprocess.CalledProcessError, urllib.error.URLError) as error:
        print(error, file=sys.stderr)
        sys.exit(3)
    for query in queries:
        rows = [list(row.__dict__.values()) for row in processor.query(query)]
        print(json.dumps(rows))
    processor.close()


main()
