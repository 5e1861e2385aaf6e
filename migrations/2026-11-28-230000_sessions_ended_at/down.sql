DROP INDEX sessions_ended_at_idx;
