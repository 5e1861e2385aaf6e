-- The memory limit of browsers in MiB, null for the node's default, and the number of sessions that each counts as in the
-- limits of sessions.
ALTER TABLE browser_pools ADD COLUMN memory_mib integer, ADD COLUMN memory_places integer NOT NULL DEFAULT 1;
ALTER TABLE browsers ADD COLUMN memory_mib integer, ADD COLUMN memory_places integer NOT NULL DEFAULT 1;
ALTER TABLE sessions ADD COLUMN memory_mib integer, ADD COLUMN memory_places integer NOT NULL DEFAULT 1;
