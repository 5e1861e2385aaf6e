-- The reason why the last check found that the proxy cannot be used; null if it can be used, or if the reason is not
-- known yet.
ALTER TABLE proxies ADD COLUMN failure text;
ALTER TABLE proxies ADD CONSTRAINT proxies_failure_check CHECK (
    failure IN ('unreachable', 'timeout', 'closed', 'reset', 'protocol', 'tls', 'authentication', 'unknown', 'target')
);
