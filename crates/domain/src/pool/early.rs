//! The proof that a pool's next browser answers, begun before it is leased: it takes about as long as the lease itself,
//! and neither needs the other.
//!
//! Nothing depends on the guess which browser comes next. One that was proven in vain is as it was before, and one that
//! was leased without having been guessed is asked after its lease.

use std::collections::HashSet;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use time::{Duration, OffsetDateTime};

use crate::browser::{BrowserEngine, EngineError, HandOut};
use crate::ids::BrowserId;

/// How old a proof may be when its browser is leased. Where the store takes longer, the page is asked again.
const FRESH: Duration = Duration::milliseconds(500);

/// The browsers that are being proven: several callers at once would all ask the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Proofs(Arc<Mutex<HashSet<BrowserId>>>);

impl Proofs {
    fn under_way(&self) -> MutexGuard<'_, HashSet<BrowserId>> {
        // Every change is one call, so a panic elsewhere leaves nothing half-made.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to prove `browser`, unless somebody does already. `told` must hold for whoever gets it: it opens nothing.
    pub(super) fn begin<'a>(
        &self,
        engine: &'a dyn BrowserEngine,
        browser: BrowserId,
        told: HandOut,
        now: OffsetDateTime,
    ) -> Option<Proof<'a>> {
        if told.start_url.is_some() || !self.under_way().insert(browser) {
            return None;
        }
        let alone = Alone { proofs: self.clone(), browser };
        let asking = engine.hand_out(browser, told.clone());
        let claim = Proven { browser, told, began: now };
        Some(Proof { claim, _alone: Some(alone), asking: Some(asking), answer: None })
    }
}

/// The only proof of its browser, until it is dropped.
struct Alone {
    proofs: Proofs,
    browser: BrowserId,
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.proofs.under_way().remove(&self.browser);
    }
}

type Answer = Result<(), EngineError>;

/// That a browser answered, as something that it was told at some moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Proven {
    pub(super) browser: BrowserId,
    pub(super) told: HandOut,
    /// When it was asked.
    pub(super) began: OffsetDateTime,
}

impl Proven {
    /// Whether this proves what a caller who is leased `browser` at `now` must know, and the browser what it must.
    pub(super) fn holds_for(&self, browser: BrowserId, told: &HandOut, now: OffsetDateTime) -> bool {
        self.browser == browser && self.told == *told && now - self.began <= FRESH
    }
}

impl From<Proven> for Proof<'_> {
    /// A proof that is complete.
    fn from(claim: Proven) -> Self {
        Self { claim, _alone: None, asking: None, answer: Some(Ok(())) }
    }
}

/// A browser that is being asked whether it answers. Dropping it stops asking.
pub(super) struct Proof<'a> {
    pub(super) claim: Proven,
    /// While it is under way.
    _alone: Option<Alone>,
    /// Until there is an answer.
    asking: Option<Pin<Box<dyn Future<Output = Answer> + Send + 'a>>>,
    answer: Option<Answer>,
}

impl fmt::Debug for Proof<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proof").field("claim", &self.claim).field("answer", &self.answer).finish()
    }
}

impl Proof<'_> {
    /// Goes on with the proof while `work` is done. Does not wait for it afterwards.
    pub(super) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let done = work.as_mut().poll(context);
            if done.is_pending() {
                self.go_on(context);
            }
            done
        })
        .await
    }

    fn go_on(&mut self, context: &mut Context<'_>) {
        if let Some(asking) = &mut self.asking
            && let Poll::Ready(answer) = asking.as_mut().poll(context)
        {
            self.asking = None;
            self.answer = Some(answer);
        }
    }

    /// Waits for its end.
    pub(super) async fn answer(mut self) -> Answer {
        match (self.answer.take(), self.asking.take()) {
            (Some(answer), _) => answer,
            (None, Some(asking)) => asking.await,
            (None, None) => unreachable!("one of both is there until this is called"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::browser::MockBrowserEngine;
    use crate::testing::{NOON, browser_id};

    fn told() -> HandOut {
        HandOut { start_url: None, abandoned_after_seconds: 60 }
    }

    fn answering(asked: &Arc<AtomicU32>) -> MockBrowserEngine {
        let mut engine = MockBrowserEngine::new();
        let asked = asked.clone();
        engine.expect_hand_out().returning(move |_, _| {
            asked.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        engine
    }

    #[tokio::test]
    async fn the_page_is_asked_while_the_lease_is_under_way() {
        let asked = Arc::new(AtomicU32::new(0));
        let engine = answering(&asked);
        let mut proof = Proofs::default().begin(&engine, browser_id(1), told(), NOON).expect("the only one");
        // A lease that is not done before the page was asked.
        let lease = poll_fn(|context| {
            context.waker().wake_by_ref();
            if asked.load(Ordering::Relaxed) == 1 { Poll::Ready("leased") } else { Poll::Pending }
        });
        assert_eq!(proof.beside(lease).await, "leased");
        proof.answer().await.expect("it answered");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn one_browser_is_asked_by_one_at_a_time() {
        let engine = answering(&Arc::default());
        let proofs = Proofs::default();
        let first = proofs.begin(&engine, browser_id(1), told(), NOON);
        assert!(first.is_some() && proofs.begin(&engine, browser_id(1), told(), NOON).is_none());
        assert!(proofs.begin(&engine, browser_id(2), told(), NOON).is_some());
        drop(first);
        assert!(proofs.begin(&engine, browser_id(1), told(), NOON).is_some());
    }

    #[test]
    fn a_proof_holds_for_its_browser_what_it_was_told_and_a_short_time() {
        let engine = answering(&Arc::default());
        let proof = Proofs::default().begin(&engine, browser_id(1), told(), NOON).expect("the only one");
        assert!(proof.claim.holds_for(browser_id(1), &told(), NOON + FRESH));
        assert!(!proof.claim.holds_for(browser_id(1), &told(), NOON + FRESH * 2));
        assert!(!proof.claim.holds_for(browser_id(2), &told(), NOON));
        assert!(!proof.claim.holds_for(browser_id(1), &HandOut { abandoned_after_seconds: 61, ..told() }, NOON));
    }
}
