//! Answers that are held whole in memory, such as pictures: how many there may be, and for how long.
//!
//! A caller that reads slowly, or not at all, keeps its answer where it is. Such answers get one of a few places, which is taken
//! before the answer is made; both are given back when it was read, when its reader has gone, or when its time is over, however
//! slowly it is being read then.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    HttpResponse,
    body::{BodySize, MessageBody},
};
use bytes::Bytes;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::error::{ApiError, Code};

/// What is copied out of a held answer at once. Nothing of the answer itself leaves here, or it would live as long as the part.
const SLICE: usize = 32 * 1024;

static PLACES: Places =
    Places { free: Semaphore::const_new(8), wait: Duration::from_secs(30), keep: Duration::from_secs(60) };

/// How many answers may be held, how long a caller waits for its place, and how long an answer is kept.
struct Places {
    free: Semaphore,
    wait: Duration,
    keep: Duration,
}

/// The right to hold one answer.
pub(crate) struct Place {
    permit: SemaphorePermit<'static>,
    keep: Duration,
}

/// A place for one answer, which is best taken before the answer is made.
///
/// # Errors
/// `unavailable`, when none has become free for half a minute.
pub(crate) async fn place() -> Result<Place, ApiError> {
    PLACES.take().await
}

impl Places {
    async fn take(&'static self) -> Result<Place, ApiError> {
        match timeout(self.wait, self.free.acquire()).await {
            Ok(Ok(permit)) => Ok(Place { permit, keep: self.keep }),
            _ => Err(ApiError::new(Code::Unavailable, "too many large answers are being read right now")),
        }
    }
}

impl Place {
    /// Answers with `content`. To be called on a tokio runtime.
    pub(crate) fn answer(self, content_type: &'static str, content: Vec<u8>) -> HttpResponse {
        HttpResponse::Ok().content_type(content_type).body(self.hold(content))
    }

    fn hold(self, content: Vec<u8>) -> Held {
        let length = content.len();
        let content = Arc::new(Mutex::new(Some((content, self.permit))));
        let (kept, keep) = (Arc::clone(&content), self.keep);
        let limit = tokio::spawn(async move {
            sleep(keep).await;
            kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        });
        Held { content, length, sent: 0, limit: limit.abort_handle() }
    }
}

/// What is held, with its place; nothing once its time is over.
type Content = Arc<Mutex<Option<(Vec<u8>, SemaphorePermit<'static>)>>>;

/// A body out of a held answer.
struct Held {
    content: Content,
    length: usize,
    sent: usize,
    /// Ends the holding when its time is over: nobody asks for more of a body while its reader takes nothing.
    limit: AbortHandle,
}

impl Held {
    fn give_back(&self) {
        self.limit.abort();
        self.content.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl MessageBody for Held {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.length as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.sent == self.length {
            return Poll::Ready(None);
        }
        let slice = {
            let held = self.content.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = held.as_ref().and_then(|(content, _)| content.get(self.sent..));
            rest.map(|rest| Bytes::copy_from_slice(&rest[..rest.len().min(SLICE)]))
        };
        let Some(slice) = slice else {
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the answer was read too slowly"))));
        };
        self.sent += slice.len();
        if self.sent == self.length {
            self.give_back();
        }
        Poll::Ready(Some(Ok(slice)))
    }
}

impl Drop for Held {
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

    fn places(most: usize, wait: Duration, keep: Duration) -> &'static Places {
        Box::leak(Box::new(Places { free: Semaphore::new(most), wait, keep }))
    }

    async fn next(body: &mut Held) -> Option<io::Result<Bytes>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await
    }

    async fn free(places: &Places, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while places.free.available_permits() != count {
            assert!(Instant::now() < deadline, "the place is not given back");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn an_answer_is_read_whole_in_slices_and_its_place_is_free_with_the_last_of_them() {
        let places = places(1, LONG, LONG);
        let content: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let mut body = places.take().await.unwrap().hold(content.clone());
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
        let mut body = places.take().await.unwrap().hold(vec![7; 100_000]);
        next(&mut body).await.unwrap().unwrap();
        assert_eq!(places.free.available_permits(), 0);
        drop(body);
        assert_eq!(places.free.available_permits(), 1);
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_is_dropped_after_its_time_and_ends_with_an_error() {
        let places = places(1, LONG, Duration::from_millis(50));
        let mut body = places.take().await.unwrap().hold(vec![7; 100_000]);
        next(&mut body).await.unwrap().unwrap();
        // Nothing asks for more of it meanwhile.
        free(places, 1).await;
        assert!(body.content.lock().unwrap().is_none());
        assert_eq!(next(&mut body).await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn whoever_waits_too_long_for_a_place_may_come_again() {
        let places = places(1, Duration::from_millis(50), LONG);
        let held = places.take().await.unwrap();
        let refusal = places.take().await.err().unwrap();
        assert_eq!(refusal.code(), Code::Unavailable);
        assert!(refusal.error_response().headers().contains_key("retry-after"));
        drop(held);
        assert!(places.take().await.is_ok());
    }

    #[tokio::test]
    async fn whoever_waits_gets_the_place_that_becomes_free() {
        let places = places(1, LONG, LONG);
        let held = places.take().await.unwrap();
        let mut waiting = pin!(places.take());
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(held);
        assert!(waiting.await.is_ok());
    }
}
