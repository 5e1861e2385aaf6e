//! Answers that are held whole in memory, such as pictures: how many there may be, and for how long.
//!
//! A caller that reads slowly, or not at all, keeps its answer where it is. Such answers get one of a few places, which is taken
//! before the answer is made; both are given back when it was read, when its reader has gone, or when its time is over, however
//! slowly it is being read then, or sooner if nothing of it is read at all. A session whose answers are slow to come, since its page hangs,
//! has few of the places, and so have the sessions of one project together: the others are for the rest.

use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    HttpResponse,
    body::{BodySize, MessageBody},
};
use bytes::Bytes;
use casement_domain::{ProjectId, SessionId, session::Session};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit},
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::error::{ApiError, Code};

/// What is copied out of a held answer at once. Nothing of the answer itself leaves here, or it would live as long as the part.
const SLICE: usize = 32 * 1024;

/// For how long an answer is kept of which its reader takes nothing.
const STALLED: Duration = Duration::from_secs(10);

static PLACES: ResponseSlots = ResponseSlots {
    free: Semaphore::const_new(8),
    each: 2,
    of_project: 6,
    shares: Mutex::new(BTreeMap::new()),
    wait: Duration::from_secs(30),
    keep: Duration::from_secs(60),
};

/// For answers that still come from a site. The request was made by then, so that the caller's own time is the bound: `unavailable`
/// would be a promise that nothing was done.
static COMING: ResponseSlots = ResponseSlots {
    free: Semaphore::const_new(16),
    each: 4,
    of_project: 12,
    shares: Mutex::new(BTreeMap::new()),
    wait: Duration::from_secs(3600),
    keep: Duration::from_secs(60),
};

/// How many answers may be held, how long a caller waits for its place, and how long an answer is kept.
struct ResponseSlots {
    free: Semaphore,
    /// How many of them one session may have.
    each: usize,
    /// How many the sessions of one project may have together.
    of_project: usize,
    shares: Mutex<BTreeMap<Owner, Share>>,
    wait: Duration,
    keep: Duration,
}

/// Who has a share of the places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Session(SessionId),
    Project(ProjectId),
}

/// A share of the places, which is known for as long as somebody uses it.
struct Share {
    turns: Arc<Semaphore>,
    users: usize,
}

/// A call that has a place out of a share, or waits for one.
struct User {
    places: &'static ResponseSlots,
    owner: Owner,
}

/// The right to hold one answer.
pub(crate) struct ResponseSlot {
    held: Permits,
    keep: Duration,
    stalled: Duration,
}

/// What is given back with a place.
struct Permits {
    _place: SemaphorePermit<'static>,
    _turns: [(OwnedSemaphorePermit, User); 2],
}

/// A place for one answer that a session is asked for now, and may be slow to give, or has given: one session has few at a time, and so have
/// those of one project together.
///
/// # Errors
/// `unavailable`, when none of its own has become free for half a minute, or none at all.
pub(crate) async fn place_of(session: &Session) -> Result<ResponseSlot, ApiError> {
    PLACES.take(session.id, session.project).await
}

/// A place for one answer that comes from a site to a session. Given back when it is dropped.
///
/// # Errors
/// `unavailable` after an hour: callers have less time.
pub(crate) async fn coming_to(session: &Session) -> Result<ResponseSlot, ApiError> {
    COMING.take(session.id, session.project).await
}

impl ResponseSlots {
    async fn take(&'static self, session: SessionId, project: ProjectId) -> Result<ResponseSlot, ApiError> {
        timeout(self.wait, self.permits(session, project)).await.ok().flatten().map_or_else(
            || Err(ApiError::new(Code::Unavailable, "too many large answers are being read right now")),
            |held| Ok(ResponseSlot { held, keep: self.keep, stalled: STALLED }),
        )
    }

    async fn permits(&'static self, session: SessionId, project: ProjectId) -> Option<Permits> {
        // The session's turn first, then the project's: who waits for these must not keep a place from others.
        let of_session = self.turn(Owner::Session(session), self.each).await?;
        let of_project = self.turn(Owner::Project(project), self.of_project).await?;
        Some(Permits { _place: self.free.acquire().await.ok()?, _turns: [of_session, of_project] })
    }

    async fn turn(&'static self, owner: Owner, most: usize) -> Option<(OwnedSemaphorePermit, User)> {
        let (user, turns) = self.user(owner, most);
        Some((turns.acquire_owned().await.ok()?, user))
    }

    fn user(&'static self, owner: Owner, most: usize) -> (User, Arc<Semaphore>) {
        let mut shares = self.shares();
        let share = shares.entry(owner).or_insert_with(|| Share { turns: Arc::new(Semaphore::new(most)), users: 0 });
        share.users += 1;
        (User { places: self, owner }, Arc::clone(&share.turns))
    }

    fn shares(&self) -> MutexGuard<'_, BTreeMap<Owner, Share>> {
        self.shares.lock()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut shares = self.places.shares();
        let Some(share) = shares.get_mut(&self.owner) else { return };
        share.users -= 1;
        if share.users == 0 {
            shares.remove(&self.owner);
        }
    }
}

impl ResponseSlot {
    /// Answers with `content`. To be called on a tokio runtime.
    pub(crate) fn answer(self, content_type: &'static str, content: Vec<u8>) -> HttpResponse {
        HttpResponse::Ok().content_type(content_type).body(self.hold(content))
    }

    fn hold(self, content: Vec<u8>) -> HeldBody {
        let length = content.len();
        let content = Arc::new(Mutex::new(Some((content, self.held))));
        let taken = Arc::<AtomicUsize>::default();
        let (kept, progress, keep, stalled) = (Arc::clone(&content), Arc::clone(&taken), self.keep, self.stalled);
        let limit = tokio::spawn(async move {
            timeout(keep, until_stalled(&progress, stalled)).await.ok();
            kept.lock().take();
        });
        HeldBody { content, length, sent: 0, taken, limit: limit.abort_handle() }
    }
}

/// Returns when nothing more was taken for so long.
async fn until_stalled(taken: &AtomicUsize, stalled: Duration) {
    let mut before = None;
    loop {
        let now = taken.load(Ordering::Relaxed);
        if before == Some(now) {
            return;
        }
        before = Some(now);
        sleep(stalled).await;
    }
}

/// What is held, with its place; nothing once its time is over.
type Content = Arc<Mutex<Option<(Vec<u8>, Permits)>>>;

/// A body out of a held answer.
struct HeldBody {
    content: Content,
    length: usize,
    sent: usize,
    /// The same, for whoever watches over it.
    taken: Arc<AtomicUsize>,
    /// Ends the holding when its time is over: nobody asks for more of a body while its reader takes nothing.
    limit: AbortHandle,
}

impl HeldBody {
    fn give_back(&self) {
        self.limit.abort();
        self.content.lock().take();
    }
}

impl MessageBody for HeldBody {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.length as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.sent == self.length {
            return Poll::Ready(None);
        }
        let slice = {
            let held = self.content.lock();
            let rest = held.as_ref().and_then(|(content, _)| content.get(self.sent..));
            rest.map(|rest| Bytes::copy_from_slice(&rest[..rest.len().min(SLICE)]))
        };
        let Some(slice) = slice else {
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the answer was read too slowly"))));
        };
        self.sent += slice.len();
        self.taken.store(self.sent, Ordering::Relaxed);
        if self.sent == self.length {
            self.give_back();
        }
        Poll::Ready(Some(Ok(slice)))
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, time::Instant};

    use actix_web::ResponseError as _;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn places(most: usize, wait: Duration, keep: Duration) -> &'static ResponseSlots {
        let (free, shares) = (Semaphore::new(most), Mutex::default());
        Box::leak(Box::new(ResponseSlots { free, each: 2, of_project: 4, shares, wait, keep }))
    }

    fn session(number: u128) -> SessionId {
        SessionId::from_ulid(number.into())
    }

    fn project(number: u128) -> ProjectId {
        ProjectId::from_ulid(number.into())
    }

    async fn next(body: &mut HeldBody) -> Option<io::Result<Bytes>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await
    }

    async fn free(places: &ResponseSlots, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while places.free.available_permits() != count {
            assert!(Instant::now() < deadline, "the place is not given back");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn an_answer_is_read_whole_in_slices_and_its_place_is_free_with_the_last_of_them() {
        let places = places(1, LONG, LONG);
        let content: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut body = places.take(session(1), project(1)).await.unwrap().hold(content.clone());
        assert_eq!(body.size(), BodySize::Sized(100_000));
        let mut got = Vec::new();
        while let Some(slice) = next(&mut body).await {
            let slice = slice.unwrap();
            assert!(slice.len() <= SLICE);
            got.extend(slice);
            assert_eq!(places.free.available_permits(), usize::from(got.len() == 100_000));
        }
        assert!(got == content);
    }

    #[tokio::test]
    async fn a_reader_that_goes_gives_the_place_back() {
        let places = places(1, LONG, LONG);
        let mut body = places.take(session(1), project(1)).await.unwrap().hold(vec![7; 100_000]);
        next(&mut body).await.unwrap().unwrap();
        assert_eq!(places.free.available_permits(), 0);
        drop(body);
        assert_eq!(places.free.available_permits(), 1);
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_is_dropped_after_its_time_and_ends_with_an_error() {
        let places = places(1, LONG, Duration::from_millis(50));
        let mut body = places.take(session(1), project(1)).await.unwrap().hold(vec![7; 100_000]);
        next(&mut body).await.unwrap().unwrap();
        // Nothing asks for more of it meanwhile.
        free(places, 1).await;
        assert!(body.content.lock().is_none());
        assert_eq!(next(&mut body).await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn whoever_waits_too_long_for_a_place_may_come_again() {
        let places = places(1, Duration::from_millis(50), LONG);
        let held = places.take(session(1), project(1)).await.unwrap();
        let refusal = places.take(session(1), project(1)).await.err().unwrap();
        assert_eq!(refusal.code(), Code::Unavailable);
        assert!(refusal.error_response().headers().contains_key("retry-after"));
        drop(held);
        assert!(places.take(session(1), project(1)).await.is_ok());
    }

    #[tokio::test]
    async fn whoever_waits_gets_the_place_that_becomes_free() {
        let places = places(1, LONG, LONG);
        let held = places.take(session(1), project(1)).await.unwrap();
        let mut waiting = pin!(places.take(session(1), project(1)));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(held);
        assert!(waiting.await.is_ok());
    }

    #[tokio::test]
    async fn a_session_has_two_places_at_a_time_and_the_others_are_for_the_rest() {
        let places = places(8, LONG, LONG);
        let (first, _second) =
            (places.take(session(1), project(1)).await.unwrap(), places.take(session(1), project(1)).await.unwrap());
        let mut third = pin!(places.take(session(1), project(1)));
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        assert_eq!(places.free.available_permits(), 6, "who waits for its own session takes nothing from others");
        assert!(places.take(session(2), project(1)).await.is_ok());
        drop(first);
        assert!(third.await.is_ok());
    }

    #[tokio::test]
    async fn a_session_whose_places_stay_taken_is_answered_as_a_full_server_does() {
        let places = places(8, Duration::from_millis(50), LONG);
        let _held =
            (places.take(session(1), project(1)).await.unwrap(), places.take(session(1), project(1)).await.unwrap());
        assert_eq!(places.take(session(1), project(1)).await.err().unwrap().code(), Code::Unavailable);
    }

    #[tokio::test]
    async fn a_place_of_a_session_is_free_when_its_answer_was_read_or_its_reader_goes() {
        let places = places(8, LONG, LONG);
        let (first, second) =
            (places.take(session(1), project(1)).await.unwrap(), places.take(session(1), project(1)).await.unwrap());
        let (mut read, left) = (first.hold(vec![7; 10]), second.hold(vec![7; 100_000]));
        next(&mut read).await.unwrap().unwrap();
        drop(left);
        assert_eq!(places.free.available_permits(), 8);
        assert!(places.shares().is_empty());
    }

    #[tokio::test]
    async fn a_session_is_forgotten_when_the_last_of_its_callers_goes_also_one_that_still_waits() {
        let places = places(1, LONG, LONG);
        let held = places.take(session(1), project(1)).await.unwrap();
        let mut for_a_place = Box::pin(places.take(session(1), project(1)));
        assert!(futures_util::poll!(for_a_place.as_mut()).is_pending());
        let mut for_its_turn = Box::pin(places.take(session(1), project(1)));
        assert!(futures_util::poll!(for_its_turn.as_mut()).is_pending());
        drop(held);
        drop(for_a_place);
        assert_eq!(places.shares().get(&Owner::Session(session(1))).map(|share| share.users), Some(1));
        drop(for_its_turn);
        assert!(places.shares().is_empty());
        assert_eq!(places.free.available_permits(), 1);
    }

    #[tokio::test]
    async fn the_sessions_of_one_project_leave_places_to_the_others() {
        let places = places(6, LONG, LONG);
        let mut held = Vec::new();
        for number in [1, 1, 2, 2] {
            held.push(places.take(session(number), project(1)).await.unwrap());
        }
        let mut more: Vec<_> = (3..15).map(|number| Box::pin(places.take(session(number), project(1)))).collect();
        for waiting in &mut more {
            assert!(futures_util::poll!(waiting).is_pending());
        }
        assert_eq!(places.free.available_permits(), 2);
        let mut other = Box::pin(places.take(session(20), project(2)));
        assert!(futures_util::poll!(&mut other).is_ready(), "nobody has to give anything back for it");
    }

    #[tokio::test]
    async fn an_answer_of_which_nothing_is_taken_is_dropped_before_its_time() {
        let places = places(1, LONG, LONG);
        let place = places.take(session(1), project(1)).await.unwrap();
        let mut body = ResponseSlot { stalled: Duration::from_millis(50), ..place }.hold(vec![7; 100_000]);
        next(&mut body).await.unwrap().unwrap();
        free(places, 1).await;
        assert_eq!(next(&mut body).await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
