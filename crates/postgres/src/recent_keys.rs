//! A short-lived cache of API keys, so that the key of a caller with many calls is read about once a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casement_domain::ApiKeyId;
use casement_domain::api_key::KeyWithHash;
use parking_lot::{Mutex, MutexGuard};

/// The lifetime of an entry. The notification of a change by another node clears the cache at once; if it is lost, the
/// change holds within a second.
const FRESH: Duration = Duration::from_millis(800);
/// The maximum number of entries. The cache is cleared beyond it.
const MAX_COUNT: usize = 10_000;

/// The cache. Clones share their entries. Each change of keys or projects by this node clears it.
#[derive(Clone, Debug, Default)]
pub struct RecentKeys(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// The number of times that the cache was cleared.
    forgotten: u64,
    keys: HashMap<ApiKeyId, (Instant, KeyWithHash)>,
}

/// A read of a key from the database that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    began: Instant,
    forgotten: u64,
}

impl RecentKeys {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// The cached key, or else a [`Reading`] to pass to [`note`](Self::note) after reading it.
    pub(crate) fn find(&self, id: ApiKeyId) -> Result<KeyWithHash, Reading> {
        let (inner, now) = (self.inner(), Instant::now());
        match inner.keys.get(&id) {
            Some((read, key)) if now.duration_since(*read) < FRESH => Ok(key.clone()),
            _ => Err(Reading { began: now, forgotten: inner.forgotten }),
        }
    }

    /// Stores a key that was read, unless the cache was cleared meanwhile: then the key may be older than the change.
    pub(crate) fn note(&self, reading: Reading, id: ApiKeyId, key: &KeyWithHash) {
        let mut inner = self.inner();
        if inner.forgotten != reading.forgotten {
            return;
        }
        if inner.keys.len() >= MAX_COUNT {
            inner.keys.clear();
        }
        inner.keys.insert(id, (reading.began, key.clone()));
    }

    /// Clears the cache. Must be called after a possible change is committed.
    pub fn forget(&self) {
        let mut inner = self.inner();
        inner.forgotten += 1;
        inner.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::UserId;
    use casement_domain::api_key::{ApiKey, SecretHash};
    use casement_domain::name::LabelName;
    use casement_domain::testing::{NOON, organization_id};
    use ulid::Ulid;

    use super::*;

    fn key() -> KeyWithHash {
        let key = ApiKey {
            id: ApiKeyId::from_ulid(Ulid(1)),
            organization: organization_id(),
            project: None,
            name: LabelName::parse("one").expect("a name"),
            hash: SecretHash([0; 32]),
            last4: "abcd".to_owned(),
            created_by: UserId::from_ulid(Ulid(2)),
            created_at: NOON,
            expires_at: None,
            deleted_at: None,
            for_deployment: false,
            policy: None,
        };
        KeyWithHash { key, project_deleted: false, home: None }
    }

    #[test]
    fn what_was_read_before_a_change_is_not_remembered_after_it() {
        let (recent, key) = (RecentKeys::default(), key());
        let id = key.key.id;
        let before = recent.find(id).expect_err("nothing is known yet");
        recent.forget();
        recent.note(before, id, &key);
        let after = recent.find(id).expect_err("it was read before the change");
        recent.note(after, id, &key);
        assert_eq!(recent.find(id).expect("it was read after the change"), key);
        recent.forget();
        assert!(recent.find(id).is_err());
    }

    #[test]
    fn what_was_read_long_ago_is_read_again() {
        let (recent, key) = (RecentKeys::default(), key());
        let id = key.key.id;
        let reading = recent.find(id).expect_err("nothing is known yet");
        let Some(began) = reading.began.checked_sub(FRESH) else { return };
        recent.note(Reading { began, ..reading }, id, &key);
        assert!(recent.find(id).is_err());
    }

    #[test]
    fn keys_without_end_are_not_remembered() {
        let (recent, key) = (RecentKeys::default(), key());
        for n in 0..=MAX_COUNT {
            let id = ApiKeyId::from_ulid(Ulid(n as u128 + 10));
            let reading = recent.find(id).expect_err("another one");
            recent.note(reading, id, &key);
        }
        assert_eq!(recent.inner().keys.len(), 1);
    }
}
