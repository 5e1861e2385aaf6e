//! Keys that were looked up a moment ago. A caller that makes many calls has its key read once a second, not once for each of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casement_domain::ApiKeyId;
use casement_domain::api_key::KeyWithHash;
use parking_lot::{Mutex, MutexGuard};

/// How long what was read may be used. A key that is revoked elsewhere is refused within a second.
const FRESH: Duration = Duration::from_millis(800);
/// How many keys are remembered; beyond that all are forgotten.
const MAX_COUNT: usize = 10_000;

/// The memory. Clones are the same; whatever changes keys or projects through this node makes it forget everything.
#[derive(Clone, Debug, Default)]
pub struct RecentKeys(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// How often everything was forgotten.
    forgotten: u64,
    keys: HashMap<ApiKeyId, (Instant, KeyWithHash)>,
}

/// A reading that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    began: Instant,
    forgotten: u64,
}

impl RecentKeys {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change is one call, so a panic elsewhere leaves nothing half-made.
        self.0.lock()
    }

    /// The key, if it was read a moment ago; else the reading that is to be done now.
    pub(crate) fn find(&self, id: ApiKeyId) -> Result<KeyWithHash, Reading> {
        let (inner, now) = (self.inner(), Instant::now());
        match inner.keys.get(&id) {
            Some((read, key)) if now.duration_since(*read) < FRESH => Ok(key.clone()),
            _ => Err(Reading { began: now, forgotten: inner.forgotten }),
        }
    }

    /// What was read, unless everything was forgotten meanwhile: then it may be older than the change.
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

    /// Something has changed, or may have. To be called when the change is there to be read.
    pub(crate) fn forget(&self) {
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
