//! Responses that are held whole in memory, such as images, and files of WebDriver commands: bounds their number and their time in memory.
//!
//! The response to a client that reads slowly, or not at all, stays in memory. Such a response needs one of a few
//! slots, which is acquired before the response is created. The slot and the response are released when the response
//! was read, when its client disconnects, after a maximum time, or earlier if the client stops reading. A session may
//! hold only some of the slots, and so may all sessions of a project together, so that a hanging page does not block
//! other sessions.

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
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit},
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::error::{ApiError, Code};

/// The size of the chunks that are copied out of a held response. Chunks are copies, because a shared buffer would
/// live as long as its last chunk.
const CHUNK_BYTES: usize = 32 * 1024;

/// The time without reading after which a held response is dropped.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

static IMAGE_SLOTS: ResponseSlots = ResponseSlots::new(8, 2, 6, Duration::from_secs(30));

/// The slots of responses that are still received from a site. The request was sent already, and `unavailable` would
/// promise that nothing was done; so the wait is longer than the timeouts of clients.
static SITE_SLOTS: ResponseSlots = ResponseSlots::new(16, 4, 12, Duration::from_secs(3600));

/// The slots of files that WebDriver commands hold in memory, several times while they are decoded.
static FILE_SLOTS: ResponseSlots = ResponseSlots::new(4, 2, 3, Duration::from_secs(30));

/// A number of slots, with the bounds per owner and the timeouts.
struct ResponseSlots {
    available: Semaphore,
    /// The maximum number of slots of one session.
    per_session: usize,
    /// The maximum number of slots of all sessions of one project.
    per_project: usize,
    shares: Mutex<BTreeMap<Owner, Share>>,
    wait_timeout: Duration,
    hold_timeout: Duration,
}

/// An owner of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Session(SessionId),
    Project(ProjectId),
}

/// The slots of one owner. The entry exists while it has users.
struct Share {
    semaphore: Arc<Semaphore>,
    users: usize,
}

/// A call that holds a slot of a share, or waits for one.
struct ShareUser {
    slots: &'static ResponseSlots,
    owner: Owner,
}

/// The right to hold one response.
pub(crate) struct ResponseSlot {
    permits: Permits,
    hold_timeout: Duration,
    stall_timeout: Duration,
}

/// The semaphore permits of a slot.
struct Permits {
    _slot: SemaphorePermit<'static>,
    _shares: [(OwnedSemaphorePermit, ShareUser); 2],
}

/// Acquires a slot for a response of a session, before or after the session has sent it.
///
/// # Errors
/// `unavailable` if no slot of the session, its project or all has become available within half a minute.
pub(crate) async fn acquire_slot(session: &Session) -> Result<ResponseSlot, ApiError> {
    IMAGE_SLOTS.acquire(session.id, session.project).await
}

/// Acquires a slot for a response that a session receives from a site. Dropping the slot releases it.
///
/// # Errors
/// `unavailable` after an hour, which exceeds the timeouts of clients.
pub(crate) async fn acquire_site_slot(session: &Session) -> Result<ResponseSlot, ApiError> {
    SITE_SLOTS.acquire(session.id, session.project).await
}

/// Acquires a slot for a file that a WebDriver command of a session holds in memory. Dropping the slot releases it.
///
/// # Errors
/// `unavailable` if no slot of the session, its project or all has become available within half a minute.
pub(crate) async fn acquire_file_slot(session: &Session) -> Result<ResponseSlot, ApiError> {
    FILE_SLOTS.acquire(session.id, session.project).await
}

impl ResponseSlots {
    const fn new(count: usize, per_session: usize, per_project: usize, wait_timeout: Duration) -> Self {
        Self {
            available: Semaphore::const_new(count),
            per_session,
            per_project,
            shares: Mutex::new(BTreeMap::new()),
            wait_timeout,
            hold_timeout: Duration::from_secs(60),
        }
    }

    async fn acquire(&'static self, session: SessionId, project: ProjectId) -> Result<ResponseSlot, ApiError> {
        timeout(self.wait_timeout, self.permits(session, project)).await.ok().flatten().map_or_else(
            || {
                Err(ApiError::new(
                    Code::Unavailable,
                    "too many large answers and files are being transferred right now",
                ))
            },
            |permits| Ok(ResponseSlot { permits, hold_timeout: self.hold_timeout, stall_timeout: STALL_TIMEOUT }),
        )
    }

    async fn permits(&'static self, session: SessionId, project: ProjectId) -> Option<Permits> {
        // Shares are acquired first, so that a call that waits for its share holds no slot.
        let session_share = self.acquire_share(Owner::Session(session), self.per_session).await?;
        let project_share = self.acquire_share(Owner::Project(project), self.per_project).await?;
        Some(Permits { _slot: self.available.acquire().await.ok()?, _shares: [session_share, project_share] })
    }

    async fn acquire_share(&'static self, owner: Owner, limit: usize) -> Option<(OwnedSemaphorePermit, ShareUser)> {
        let (user, semaphore) = self.register_user(owner, limit);
        Some((semaphore.acquire_owned().await.ok()?, user))
    }

    fn register_user(&'static self, owner: Owner, limit: usize) -> (ShareUser, Arc<Semaphore>) {
        let mut shares = self.shares.lock();
        let share =
            shares.entry(owner).or_insert_with(|| Share { semaphore: Arc::new(Semaphore::new(limit)), users: 0 });
        share.users += 1;
        (ShareUser { slots: self, owner }, Arc::clone(&share.semaphore))
    }
}

impl Drop for ShareUser {
    fn drop(&mut self) {
        let mut shares = self.slots.shares.lock();
        let Some(share) = shares.get_mut(&self.owner) else { return };
        share.users -= 1;
        if share.users == 0 {
            shares.remove(&self.owner);
        }
    }
}

impl ResponseSlot {
    /// Responds with `content`. Must be called on a Tokio runtime.
    pub(crate) fn answer(self, content_type: &'static str, content: Vec<u8>) -> HttpResponse {
        HttpResponse::Ok().content_type(content_type).body(self.hold(content))
    }

    fn hold(self, content: Vec<u8>) -> HeldBody {
        let length = content.len();
        let content = Arc::new(Mutex::new(Some((content, self.permits))));
        let sent_bytes = Arc::<AtomicUsize>::default();
        let (held, progress, hold_timeout, stall_timeout) =
            (Arc::clone(&content), Arc::clone(&sent_bytes), self.hold_timeout, self.stall_timeout);
        let limit = tokio::spawn(async move {
            timeout(hold_timeout, until_stalled(&progress, stall_timeout)).await.ok();
            held.lock().take();
        });
        HeldBody { content, length, sent: 0, sent_bytes, limit: limit.abort_handle() }
    }
}

/// Waits until the number of sent bytes has not changed for `stall_timeout`.
async fn until_stalled(sent_bytes: &AtomicUsize, stall_timeout: Duration) {
    let mut before = None;
    loop {
        let now = sent_bytes.load(Ordering::Relaxed);
        if before == Some(now) {
            return;
        }
        before = Some(now);
        sleep(stall_timeout).await;
    }
}

/// The held content with its slot; `None` once it was released.
type Content = Arc<Mutex<Option<(Vec<u8>, Permits)>>>;

/// The body of a held response.
struct HeldBody {
    content: Content,
    length: usize,
    sent: usize,
    /// The value of `sent`, for the task that detects stalled clients.
    sent_bytes: Arc<AtomicUsize>,
    /// The task that releases the content after its time. A body is not polled while its client reads nothing.
    limit: AbortHandle,
}

impl HeldBody {
    fn release(&self) {
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
        let chunk = {
            let held = self.content.lock();
            let rest = held.as_ref().and_then(|(content, _)| content.get(self.sent..));
            rest.map(|rest| Bytes::copy_from_slice(&rest[..rest.len().min(CHUNK_BYTES)]))
        };
        let Some(chunk) = chunk else {
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the answer was read too slowly"))));
        };
        self.sent += chunk.len();
        self.sent_bytes.store(self.sent, Ordering::Relaxed);
        if self.sent == self.length {
            self.release();
        }
        Poll::Ready(Some(Ok(chunk)))
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, time::Instant};

    use actix_web::ResponseError as _;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn slots(count: usize, wait_timeout: Duration, hold_timeout: Duration) -> &'static ResponseSlots {
        let (available, shares) = (Semaphore::new(count), Mutex::default());
        Box::leak(Box::new(ResponseSlots {
            available,
            per_session: 2,
            per_project: 4,
            shares,
            wait_timeout,
            hold_timeout,
        }))
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

    async fn wait_for_available(slots: &ResponseSlots, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while slots.available.available_permits() != count {
            assert!(Instant::now() < deadline, "the slot is not released");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_response_is_read_in_chunks_and_the_last_one_releases_its_slot() {
        let slots = slots(1, LONG, LONG);
        let content: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut body = slots.acquire(session(1), project(1)).await.unwrap().hold(content.clone());
        assert_eq!(body.size(), BodySize::Sized(100_000));
        let mut received = Vec::new();
        while let Some(chunk) = next(&mut body).await {
            let chunk = chunk.unwrap();
            assert!(chunk.len() <= CHUNK_BYTES);
            received.extend(chunk);
            assert_eq!(slots.available.available_permits(), usize::from(received.len() == 100_000));
        }
        assert!(received == content);
    }

    #[tokio::test]
    async fn a_client_that_disconnects_releases_the_slot() {
        let slots = slots(1, LONG, LONG);
        let mut body = slots.acquire(session(1), project(1)).await.unwrap().hold(vec![7; 100_000]);
        next(&mut body).await.unwrap().unwrap();
        assert_eq!(slots.available.available_permits(), 0);
        drop(body);
        assert_eq!(slots.available.available_permits(), 1);
    }

    #[tokio::test]
    async fn an_unread_response_is_dropped_after_its_time_and_ends_with_an_error() {
        let slots = slots(1, LONG, Duration::from_millis(50));
        let mut body = slots.acquire(session(1), project(1)).await.unwrap().hold(vec![7; 100_000]);
        next(&mut body).await.unwrap().unwrap();
        // The body is not polled meanwhile.
        wait_for_available(slots, 1).await;
        assert!(body.content.lock().is_none());
        assert_eq!(next(&mut body).await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_call_that_waits_too_long_for_a_slot_is_refused_and_may_retry() {
        let slots = slots(1, Duration::from_millis(50), LONG);
        let held = slots.acquire(session(1), project(1)).await.unwrap();
        let refusal = slots.acquire(session(1), project(1)).await.err().unwrap();
        assert_eq!(refusal.code(), Code::Unavailable);
        assert!(refusal.error_response().headers().contains_key("retry-after"));
        drop(held);
        assert!(slots.acquire(session(1), project(1)).await.is_ok());
    }

    #[tokio::test]
    async fn a_waiting_call_gets_the_slot_that_becomes_available() {
        let slots = slots(1, LONG, LONG);
        let held = slots.acquire(session(1), project(1)).await.unwrap();
        let mut waiting = pin!(slots.acquire(session(1), project(1)));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(held);
        assert!(waiting.await.is_ok());
    }

    #[tokio::test]
    async fn a_session_holds_at_most_two_slots_and_others_get_the_rest() {
        let slots = slots(8, LONG, LONG);
        let (first, _second) = (
            slots.acquire(session(1), project(1)).await.unwrap(),
            slots.acquire(session(1), project(1)).await.unwrap(),
        );
        let mut third = pin!(slots.acquire(session(1), project(1)));
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        assert_eq!(slots.available.available_permits(), 6, "a call that waits for its share holds no slot");
        assert!(slots.acquire(session(2), project(1)).await.is_ok());
        drop(first);
        assert!(third.await.is_ok());
    }

    #[tokio::test]
    async fn a_session_whose_slots_stay_occupied_is_refused_as_unavailable() {
        let slots = slots(8, Duration::from_millis(50), LONG);
        let _held = (
            slots.acquire(session(1), project(1)).await.unwrap(),
            slots.acquire(session(1), project(1)).await.unwrap(),
        );
        assert_eq!(slots.acquire(session(1), project(1)).await.err().unwrap().code(), Code::Unavailable);
    }

    #[tokio::test]
    async fn a_slot_is_released_when_its_response_was_read_or_its_client_disconnects() {
        let slots = slots(8, LONG, LONG);
        let (first, second) = (
            slots.acquire(session(1), project(1)).await.unwrap(),
            slots.acquire(session(1), project(1)).await.unwrap(),
        );
        let (mut read, left) = (first.hold(vec![7; 10]), second.hold(vec![7; 100_000]));
        next(&mut read).await.unwrap().unwrap();
        drop(left);
        assert_eq!(slots.available.available_permits(), 8);
        assert!(slots.shares.lock().is_empty());
    }

    #[tokio::test]
    async fn a_share_is_removed_with_its_last_user_even_one_that_still_waits() {
        let slots = slots(1, LONG, LONG);
        let held = slots.acquire(session(1), project(1)).await.unwrap();
        let mut slot_waiter = Box::pin(slots.acquire(session(1), project(1)));
        assert!(futures_util::poll!(slot_waiter.as_mut()).is_pending());
        let mut share_waiter = Box::pin(slots.acquire(session(1), project(1)));
        assert!(futures_util::poll!(share_waiter.as_mut()).is_pending());
        drop(held);
        drop(slot_waiter);
        assert_eq!(slots.shares.lock().get(&Owner::Session(session(1))).map(|share| share.users), Some(1));
        drop(share_waiter);
        assert!(slots.shares.lock().is_empty());
        assert_eq!(slots.available.available_permits(), 1);
    }

    #[tokio::test]
    async fn the_sessions_of_one_project_leave_slots_to_other_projects() {
        let slots = slots(6, LONG, LONG);
        let mut held = Vec::new();
        for number in [1, 1, 2, 2] {
            held.push(slots.acquire(session(number), project(1)).await.unwrap());
        }
        let mut more: Vec<_> = (3..15).map(|number| Box::pin(slots.acquire(session(number), project(1)))).collect();
        for waiting in &mut more {
            assert!(futures_util::poll!(waiting).is_pending());
        }
        assert_eq!(slots.available.available_permits(), 2);
        let mut other = Box::pin(slots.acquire(session(20), project(2)));
        assert!(futures_util::poll!(&mut other).is_ready(), "a slot is available without a release");
    }

    #[tokio::test]
    async fn a_response_of_which_nothing_is_read_is_dropped_before_its_time() {
        let slots = slots(1, LONG, LONG);
        let slot = slots.acquire(session(1), project(1)).await.unwrap();
        let mut body = ResponseSlot { stall_timeout: Duration::from_millis(50), ..slot }.hold(vec![7; 100_000]);
        next(&mut body).await.unwrap().unwrap();
        wait_for_available(slots, 1).await;
        assert_eq!(next(&mut body).await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
