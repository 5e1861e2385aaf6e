-- A proxy is either a custom one with a host, or a rented one of the operator with the requested exit.
ALTER TABLE proxies ALTER COLUMN host DROP NOT NULL;
ALTER TABLE proxies ALTER COLUMN port DROP NOT NULL;
ALTER TABLE proxies ADD COLUMN exit jsonb;
ALTER TABLE proxies ADD CONSTRAINT proxies_config_check CHECK (
    CASE type
        WHEN 'custom' THEN host IS NOT NULL AND port IS NOT NULL AND exit IS NULL
        ELSE host IS NULL AND port IS NULL AND username IS NULL AND sealed_password IS NULL AND exit IS NOT NULL
    END
);
