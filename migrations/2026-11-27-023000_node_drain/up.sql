-- The time at which a drain ends the sessions that are left. Null: there is no limit.
ALTER TABLE nodes ADD COLUMN drain_ends_at timestamptz;
