-- For the deletion of old invocations.
CREATE INDEX invocations_finished_at_idx ON invocations (finished_at) WHERE finished_at IS NOT NULL;
-- For ending the sessions of a cancelled invocation.
CREATE INDEX sessions_living_invocation_idx ON sessions (invocation_id) WHERE state <> 'ended' AND invocation_id IS NOT NULL;
