//! Watches a display for changes, on a thread and a connection of its own, as long as there are viewers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use x11rb::connection::Connection as _;
use x11rb::errors::{ConnectionError, ReplyError};
use x11rb::protocol::Event;
use x11rb::protocol::damage::{ConnectionExt as _, ReportLevel};
use x11rb::protocol::xfixes::{ConnectionExt as _, CursorNotifyMask};
use x11rb::protocol::xproto::{ConnectionExt as _, Window};
use x11rb::rust_connection::RustConnection;

use super::changes::{Area, Changes};

/// The time without a request after which there are no viewers.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of events of one poll. Further events follow in the next one.
const MAX_EVENTS: usize = 1000;

/// The last state of any watch. Each watch continues from it, so that a state of an earlier display is never mistaken
/// for one of the current display.
static LAST_STATE: AtomicU64 = AtomicU64::new(0);

/// A watched display.
#[derive(Debug)]
pub(super) struct Watch {
    display: String,
    changes: Mutex<Changes>,
    state: watch::Sender<u64>,
    last_request: Mutex<Instant>,
    has_ended: AtomicBool,
}

impl Watch {
    /// Watches the display `name`, polling at `interval`.
    pub(super) fn start(name: &str, interval: Duration) -> io::Result<Arc<Self>> {
        let changes = Changes::above(LAST_STATE.load(Ordering::Relaxed));
        let watch = Arc::new(Self {
            display: name.to_owned(),
            state: watch::Sender::new(changes.state()),
            changes: Mutex::new(changes),
            last_request: Mutex::new(Instant::now()),
            has_ended: AtomicBool::new(false),
        });
        let polled = Arc::clone(&watch);
        std::thread::Builder::new().name("view".to_owned()).spawn(move || {
            if let Err(error) = poll(&polled, interval) {
                tracing::debug!(%error, "cannot watch the display any more");
            }
            polled.has_ended.store(true, Ordering::Relaxed);
            // The waiting viewers request again and receive the whole display.
            polled.note(Area::ALL);
        })?;
        Ok(watch)
    }

    /// Returns true if the watch still watches that display.
    pub(super) fn is_active(&self, display: &str) -> bool {
        self.display == display && !self.has_ended.load(Ordering::Relaxed)
    }

    /// Waits for a change after `since`; `false` if there was none `within` this time.
    pub(super) async fn wait_for_change(&self, since: Option<u64>, within: Duration) -> bool {
        self.record_request();
        let mut state = self.state.subscribe();
        let changed = tokio::time::timeout(within, state.wait_for(|state| Some(*state) != since)).await;
        self.record_request();
        changed.is_ok()
    }

    fn record_request(&self) {
        *self.last_request.lock() = Instant::now();
    }

    fn is_wanted(&self) -> bool {
        self.last_request.lock().elapsed() < IDLE_TIMEOUT
    }

    /// Returns the current state, and the area that changed after `since`.
    pub(super) fn since(&self, since: Option<u64>, size: (u32, u32)) -> (u64, Area) {
        let mut changes = self.changes.lock();
        let changed = changes.since(since, size);
        self.publish(&changes);
        changed
    }

    fn note(&self, area: Area) {
        let mut changes = self.changes.lock();
        changes.note(area);
        self.publish(&changes);
    }

    fn publish(&self, changes: &Changes) {
        LAST_STATE.fetch_max(changes.state(), Ordering::Relaxed);
        self.state.send_if_modified(|state| std::mem::replace(state, changes.state()) != changes.state());
    }
}

fn poll(watch: &Watch, interval: Duration) -> Result<(), ReplyError> {
    let refused = |_| ReplyError::ConnectionError(ConnectionError::UnknownError);
    let (connection, screen) = RustConnection::connect(Some(&watch.display)).map_err(refused)?;
    let root = connection.setup().roots.get(screen).ok_or(ConnectionError::UnknownError)?.root;
    connection.xfixes_query_version(5, 0)?.reply()?;
    connection.damage_query_version(1, 1)?.reply()?;
    let damage = connection.generate_id().map_err(|_| ConnectionError::UnknownError)?;
    connection.damage_create(damage, root, ReportLevel::BOUNDING_BOX)?.check()?;
    connection.xfixes_select_cursor_input(root, CursorNotifyMask::DISPLAY_CURSOR)?.check()?;
    let mut cursor = Pointer::default();
    while watch.is_wanted() {
        let mut damaged = false;
        let mut has_new_image = false;
        for _ in 0..MAX_EVENTS {
            match connection.poll_for_event()? {
                Some(Event::DamageNotify(event)) => {
                    damaged = true;
                    let area = event.area;
                    watch.note(Area::at(area.x.into(), area.y.into(), area.width, area.height));
                }
                Some(Event::XfixesCursorNotify(_)) => has_new_image = true,
                Some(_) => {}
                None => break,
            }
        }
        if damaged {
            // Later damage is reported again.
            connection.damage_subtract(damage, x11rb::NONE, x11rb::NONE)?;
        }
        // Its reply also confirms the requests above. The server draws the cursor without reporting damage.
        cursor.follow(&connection, root, has_new_image, |area| watch.note(area))?;
        std::thread::sleep(interval);
    }
    Ok(())
}

/// The last position and area of the cursor.
#[derive(Default)]
struct Pointer {
    at: Option<(i16, i16)>,
    area: Option<Area>,
}

impl Pointer {
    fn follow(
        &mut self,
        connection: &RustConnection,
        root: Window,
        has_new_image: bool,
        mut note: impl FnMut(Area),
    ) -> Result<(), ReplyError> {
        let pointer = connection.query_pointer(root)?.reply()?;
        let at = Some((pointer.root_x, pointer.root_y));
        if at == self.at && !has_new_image {
            return Ok(());
        }
        self.at = at;
        // The server refuses if there is no cursor.
        let image = connection.xfixes_get_cursor_image()?.reply().ok();
        let area = image.map(|image| {
            let (x, y) = (i32::from(image.x) - i32::from(image.xhot), i32::from(image.y) - i32::from(image.yhot));
            Area::at(x, y, image.width, image.height)
        });
        for area in [self.area, area].into_iter().flatten() {
            note(area);
        }
        self.area = area;
        Ok(())
    }
}
