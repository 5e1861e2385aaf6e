-- Which unknown fields the request that made a session had, if any.
CREATE TABLE session_ignored_fields (
    session_id uuid PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    fields text[] NOT NULL
);
