-- Whether the node refuses sessions beyond max_sessions. Otherwise that number is an estimate.
ALTER TABLE nodes ADD COLUMN limits_sessions boolean NOT NULL DEFAULT false;
