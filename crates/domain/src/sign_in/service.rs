//! The use cases of sign-ins.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::{CookieHash, SignIn, SignInBounds, SignInRepository};
use crate::clock::{Clock, Entropy};
use crate::ids::ApiKeyId;
use crate::store_error::StoreError;

/// The maximum number of sign-ins with one key, and in total. A further one replaces the one that has been idle
/// longest.
const MAX_PER_KEY: u32 = 20;
const MAX_TOTAL: u32 = 1000;

/// The use cases of sign-ins.
#[derive(Clone)]
pub struct SignIns {
    rows: Arc<dyn SignInRepository>,
    entropy: Arc<dyn Entropy>,
    clock: Arc<dyn Clock>,
}

impl SignIns {
    /// Creates the use cases.
    #[must_use]
    pub fn new(rows: Arc<dyn SignInRepository>, entropy: Arc<dyn Entropy>, clock: Arc<dyn Clock>) -> Self {
        Self { rows, entropy, clock }
    }

    /// Signs in. Returns the value of the cookie, which cannot be derived from the stored sign-in.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn begin(&self, key: ApiKeyId) -> Result<(String, SignIn), StoreError> {
        let secret = || URL_SAFE_NO_PAD.encode(self.entropy.secret_bytes());
        let (cookie, token, now) = (secret(), secret(), self.clock.now());
        let sign_in = SignIn { cookie: hash(&cookie), key, token, started_at: now, last_used_at: now };
        let bounds = SignInBounds {
            started_after: now - SignIn::MAX_DURATION,
            used_after: now - SignIn::IDLE_TIMEOUT,
            max_per_key: MAX_PER_KEY,
            max_total: MAX_TOTAL,
        };
        self.rows.create(&sign_in, &bounds).await?;
        Ok((cookie, sign_in))
    }

    /// Returns the sign-in of a cookie if it is valid, and marks it as used.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn find(&self, cookie: &str) -> Result<Option<SignIn>, StoreError> {
        let (cookie, now) = (hash(cookie), self.clock.now());
        let Some(sign_in) = self.rows.find(cookie).await? else { return Ok(None) };
        if !sign_in.is_valid(now) {
            self.rows.delete(cookie).await?;
            return Ok(None);
        }
        if now - sign_in.last_used_at >= SignIn::USE_STEP {
            self.rows.mark_used(cookie, now).await?;
        }
        Ok(Some(sign_in))
    }

    /// Ends the sign-in of a cookie, on all nodes.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn end(&self, cookie: &str) -> Result<(), StoreError> {
        self.rows.delete(hash(cookie)).await
    }

    /// Ends all sign-ins with this key.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn end_all_with_key(&self, key: ApiKeyId) -> Result<(), StoreError> {
        self.rows.delete_of_key(key).await
    }
}

fn hash(cookie: &str) -> CookieHash {
    CookieHash(Sha256::digest(cookie).into())
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;
    use crate::sign_in::MockSignInRepository;
    use crate::testing::{CountingIds, FixedClock, NOON};

    fn sign_ins(rows: MockSignInRepository, clock: &Arc<FixedClock>) -> SignIns {
        SignIns::new(Arc::new(rows), Arc::new(CountingIds::default()), clock.clone())
    }

    fn key() -> ApiKeyId {
        ApiKeyId::from_ulid(ulid::Ulid(1))
    }

    #[tokio::test]
    async fn the_store_gets_neither_the_cookie_nor_anything_to_derive_it_from() {
        let mut rows = MockSignInRepository::new();
        rows.expect_create().times(1).returning(|_, _| Ok(()));
        let (cookie, sign_in) = sign_ins(rows, &Arc::default()).begin(key()).await.expect("stored");
        assert_eq!((cookie.len(), sign_in.cookie), (43, hash(&cookie)));
        assert_ne!(cookie, sign_in.token);
        assert!(!format!("{sign_in:?}").contains(&cookie));
    }

    #[tokio::test]
    async fn a_sign_in_lasts_while_it_is_used_but_not_forever() {
        let stored = |last_used_at| SignIn {
            cookie: hash("cookie"),
            key: key(),
            token: "token".to_owned(),
            started_at: NOON,
            last_used_at,
        };
        let (used, step) = (NOON + Duration::hours(11), SignIn::USE_STEP);
        for (last_used_at, now, valid, marked) in [
            (NOON, NOON, true, false),
            (used, used + step - Duration::SECOND, true, false),
            (used, used + step, true, true),
            (used, NOON + SignIn::MAX_DURATION, false, false),
            (NOON, NOON + SignIn::IDLE_TIMEOUT, false, false),
        ] {
            let mut rows = MockSignInRepository::new();
            rows.expect_find().returning(move |_| Ok(Some(stored(last_used_at))));
            rows.expect_mark_used().times(usize::from(marked)).returning(|_, _| Ok(()));
            rows.expect_delete().times(usize::from(!valid)).returning(|_| Ok(()));
            let clock = Arc::new(FixedClock::default());
            clock.step(now - clock.now());
            assert_eq!(sign_ins(rows, &clock).find("cookie").await.expect("read").is_some(), valid, "{now}");
        }
    }
}
