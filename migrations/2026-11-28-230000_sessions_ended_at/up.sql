-- Finds the sessions whose retention is over.
CREATE INDEX sessions_ended_at_idx ON sessions (ended_at) WHERE state = 'ended';
