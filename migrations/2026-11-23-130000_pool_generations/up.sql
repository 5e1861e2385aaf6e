-- A discard of all browsers of a pool begins a new generation; a browser of an earlier generation is never leased.
ALTER TABLE browser_pools ADD COLUMN generation bigint NOT NULL DEFAULT 0;
ALTER TABLE browsers ADD COLUMN generation bigint NOT NULL DEFAULT 0;
