-- A discard of all that a pool has makes a new generation; a browser of an earlier one is never leased.
ALTER TABLE browser_pools ADD COLUMN generation bigint NOT NULL DEFAULT 0;
ALTER TABLE browsers ADD COLUMN generation bigint NOT NULL DEFAULT 0;
