"""Reads a trace with Perfetto's own message definitions, and adds up what its slices say.

    perfetto_messages.py TRACE

Prints a JSON object: sums of the values that slices have, how many flows end, and how many fields the definitions don't know.
"""

import collections
import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace


def unknown(message):
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            parts = [value] if hasattr(value, "ListFields") else value
            count += sum(unknown(part) for part in parts)
    return count


trace = Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
names, sums = {}, collections.Counter()
for packet in trace.packet:
    for text in packet.interned_data.debug_annotation_names:
        names[text.iid] = text.name
    for value in packet.track_event.debug_annotations:
        if value.HasField("int_value"):
            sums[names[value.name_iid]] += value.int_value
    sums["flows"] += len(packet.track_event.terminating_flow_ids)
sums["unknown_fields"] = unknown(trace)
print(json.dumps(sums))
