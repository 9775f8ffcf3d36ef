-- Traces that lost more than 5 % of their events, and so are in no other query, with the reason.
SELECT host, trace_id, events, lost, lost_ring_full, lost_guard, lost_no_place, lost_recursion, lost_undecodable
FROM traces
WHERE ranked = 0
ORDER BY host, trace_id
