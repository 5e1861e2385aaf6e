//! One capture for all viewers: viewers that have the same picture wait for the next one together.
//!
//! The agent of a session answers a bounded number of requests at a time. Without changes, all viewers have the same picture, so
//! they are one request there, and a change is captured and encoded once.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use casement_domain::{
    BrowserId,
    live_view::{DialogAnswer, Frame, LiveDisplay, OpenDialogs},
    session_operation::OperationError,
};
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, WeakShared},
};
use parking_lot::Mutex;

/// A response that several viewers receive.
type SharedResult<T> = Result<T, Arc<OperationError>>;

/// The browser of a request, and the version that the viewer has.
type Key = (BrowserId, Option<u64>);
/// A request that ends with its last viewer.
type PendingRequest<T> = WeakShared<BoxFuture<'static, SharedResult<T>>>;

/// The pending requests.
struct PendingRequests<T: Clone>(Mutex<HashMap<Key, PendingRequest<T>>>);

impl<T: Clone> Default for PendingRequests<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> PendingRequests<T> {
    /// Waits for the response to the pending request of this key, or to a new one.
    async fn join(
        &self,
        key: Key,
        request: impl FnOnce() -> BoxFuture<'static, SharedResult<T>>,
    ) -> Result<T, OperationError> {
        let response = {
            let mut pending = self.0.lock();
            // A request that other viewers have not dropped yet may be complete: its response is of the past, and a viewer
            // that joined it again and again would never yield to them.
            let is_pending = |request: &PendingRequest<T>| request.upgrade().is_some_and(|one| one.peek().is_none());
            pending.retain(|_, request| is_pending(request));
            match pending.get(&key).and_then(WeakShared::upgrade) {
                Some(pending) => pending,
                None => {
                    let request = request().shared();
                    pending.extend(request.downgrade().map(|weak| (key, weak)));
                    request
                }
            }
        };
        let shared = |error: Arc<OperationError>| OperationError::State(error.to_string());
        response.await.map_err(|error| Arc::try_unwrap(error).unwrap_or_else(shared))
    }
}

/// Displays whose viewers share requests.
pub(crate) struct SharedDisplays {
    source: Arc<dyn LiveDisplay>,
    frames: PendingRequests<Option<Frame>>,
    dialogs: PendingRequests<OpenDialogs>,
}

impl SharedDisplays {
    pub(crate) fn new(source: Arc<dyn LiveDisplay>) -> Self {
        Self { source, frames: PendingRequests::default(), dialogs: PendingRequests::default() }
    }
}

#[async_trait]
impl LiveDisplay for SharedDisplays {
    async fn next_frame(&self, browser: BrowserId, since: Option<u64>) -> Result<Option<Frame>, OperationError> {
        let source = Arc::clone(&self.source);
        let request = || async move { source.next_frame(browser, since).await.map_err(Arc::new) }.boxed();
        self.frames.join((browser, since), request).await
    }

    async fn next_dialogs(&self, browser: BrowserId, since: Option<u64>) -> Result<OpenDialogs, OperationError> {
        let source = Arc::clone(&self.source);
        let request = || async move { source.next_dialogs(browser, since).await.map_err(Arc::new) }.boxed();
        self.dialogs.join((browser, since), request).await
    }

    async fn answer_dialog(&self, browser: BrowserId, answer: DialogAnswer) -> Result<(), OperationError> {
        self.source.answer_dialog(browser, answer).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::Bytes;
    use casement_domain::testing::browser_id;
    use futures_util::{future::join_all, poll};
    use tokio::sync::Notify;

    use super::*;

    /// A display that changes on demand, and counts the requests for its picture.
    #[derive(Default)]
    struct Display {
        requests: AtomicU64,
        changed: Notify,
    }

    #[async_trait]
    impl LiveDisplay for Display {
        async fn next_frame(&self, _: BrowserId, _: Option<u64>) -> Result<Option<Frame>, OperationError> {
            let state = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
            self.changed.notified().await;
            Ok(Some(Frame { state, width: 1, height: 1, x: 0, y: 0, jpeg: Bytes::new() }))
        }

        async fn next_dialogs(&self, _: BrowserId, _: Option<u64>) -> Result<OpenDialogs, OperationError> {
            Err(OperationError::State("no dialogs".to_owned()))
        }

        async fn answer_dialog(&self, _: BrowserId, _: DialogAnswer) -> Result<(), OperationError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn viewers_of_the_same_picture_are_one_request_and_get_the_same_frame() {
        let display = Arc::new(Display::default());
        let shared = SharedDisplays::new(display.clone());
        let mut viewers = Box::pin(join_all((0..30).map(|_| shared.next_frame(browser_id(1), Some(7)))));
        assert!(poll!(viewers.as_mut()).is_pending());
        assert_eq!(display.requests.load(Ordering::SeqCst), 1);
        let mut other = Box::pin(shared.next_frame(browser_id(2), Some(7)));
        let mut behind = Box::pin(shared.next_frame(browser_id(1), None));
        assert!(poll!(other.as_mut()).is_pending() && poll!(behind.as_mut()).is_pending());
        assert_eq!(display.requests.load(Ordering::SeqCst), 3, "another browser and another picture");
        display.changed.notify_one();
        let frames: Vec<_> =
            viewers.await.into_iter().map(|frame| frame.expect("a frame").map(|frame| frame.state)).collect();
        assert_eq!(frames, vec![Some(1); 30]);
    }

    #[tokio::test]
    async fn a_request_goes_on_without_the_viewer_that_made_it_and_ends_with_the_last() {
        let display = Arc::new(Display::default());
        let shared = SharedDisplays::new(display.clone());
        let mut first = Box::pin(shared.next_frame(browser_id(1), None));
        let mut second = Box::pin(shared.next_frame(browser_id(1), None));
        assert!(poll!(first.as_mut()).is_pending() && poll!(second.as_mut()).is_pending());
        drop(first);
        display.changed.notify_one();
        assert_eq!(second.await.expect("a frame").map(|frame| frame.state), Some(1));
        let mut abandoned = Box::pin(shared.next_frame(browser_id(1), None));
        assert!(poll!(abandoned.as_mut()).is_pending());
        drop(abandoned);
        let mut next = Box::pin(shared.next_frame(browser_id(1), None));
        assert!(poll!(next.as_mut()).is_pending());
        assert_eq!(display.requests.load(Ordering::SeqCst), 3, "the abandoned request was dropped");
    }

    #[tokio::test]
    async fn a_viewer_waits_for_a_new_response_while_others_hold_the_last_one() {
        let display = Arc::new(Display::default());
        let shared = SharedDisplays::new(display.clone());
        let mut first = Box::pin(shared.next_frame(browser_id(1), None));
        let mut slow = Box::pin(shared.next_frame(browser_id(1), None));
        assert!(poll!(first.as_mut()).is_pending() && poll!(slow.as_mut()).is_pending());
        display.changed.notify_one();
        assert_eq!(first.await.expect("a frame").map(|frame| frame.state), Some(1));
        let mut again = Box::pin(shared.next_frame(browser_id(1), None));
        assert!(poll!(again.as_mut()).is_pending(), "the complete request is not joined");
        assert_eq!(display.requests.load(Ordering::SeqCst), 2);
        assert_eq!(slow.await.expect("a frame").map(|frame| frame.state), Some(1));
    }

    #[tokio::test]
    async fn an_error_reaches_every_viewer() {
        let shared = SharedDisplays::new(Arc::new(Display::default()));
        let (one, other) =
            tokio::join!(shared.next_dialogs(browser_id(1), None), shared.next_dialogs(browser_id(1), None));
        for failed in [one, other] {
            assert_eq!(failed.expect_err("no dialogs").to_string(), "no dialogs");
        }
    }
}
