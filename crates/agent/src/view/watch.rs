//! Watches a display for changes, on a thread and a connection of its own, as long as somebody looks.

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

/// Nobody looks any more when nobody has asked for this long.
const UNWANTED: Duration = Duration::from_secs(30);
/// Changes taken in at one time; the others come next time.
const MAX_EVENTS: usize = 1000;

/// Where the count of the watch before ended: a viewer that has seen a display of before is told nothing wrong about this one.
static LAST_STATE: AtomicU64 = AtomicU64::new(0);

/// A watched display.
#[derive(Debug)]
pub(super) struct Watch {
    display: String,
    changes: Mutex<Changes>,
    state: watch::Sender<u64>,
    wanted: Mutex<Instant>,
    over: AtomicBool,
}

impl Watch {
    /// Watches the display `name`, looking every `pace`.
    pub(super) fn begin(name: &str, pace: Duration) -> io::Result<Arc<Self>> {
        let changes = Changes::above(LAST_STATE.load(Ordering::Relaxed));
        let watch = Arc::new(Self {
            display: name.to_owned(),
            state: watch::Sender::new(changes.state()),
            changes: Mutex::new(changes),
            wanted: Mutex::new(Instant::now()),
            over: AtomicBool::new(false),
        });
        let looking = Arc::clone(&watch);
        std::thread::Builder::new().name("view".to_owned()).spawn(move || {
            if let Err(error) = look(&looking, pace) {
                tracing::debug!(%error, "the display is not watched any more");
            }
            looking.over.store(true, Ordering::Relaxed);
            // Whoever waits asks again, and is told of everything.
            looking.note(Area::ALL);
        })?;
        Ok(watch)
    }

    /// Whether it still watches that display.
    pub(super) fn goes_on(&self, display: &str) -> bool {
        self.display == display && !self.over.load(Ordering::Relaxed)
    }

    /// Waits until something changed after `since`; `false` when nothing did for `patience`.
    pub(super) async fn changed(&self, since: Option<u64>, time_limit: Duration) -> bool {
        self.want();
        let mut state = self.state.subscribe();
        let changed = tokio::time::timeout(time_limit, state.wait_for(|state| Some(*state) != since)).await;
        self.want();
        changed.is_ok()
    }

    fn want(&self) {
        *self.wanted.lock() = Instant::now();
    }

    fn is_wanted(&self) -> bool {
        self.wanted.lock().elapsed() < UNWANTED
    }

    /// The state now, and what changed after `since`.
    pub(super) fn since(&self, since: Option<u64>, size: (u32, u32)) -> (u64, Area) {
        let mut changes = self.changes.lock();
        let reported = changes.since(since, size);
        self.report(&changes);
        reported
    }

    fn note(&self, area: Area) {
        let mut changes = self.changes.lock();
        changes.note(area);
        self.report(&changes);
    }

    fn report(&self, changes: &Changes) {
        LAST_STATE.fetch_max(changes.state(), Ordering::Relaxed);
        self.state.send_if_modified(|state| std::mem::replace(state, changes.state()) != changes.state());
    }
}

fn look(watch: &Watch, pace: Duration) -> Result<(), ReplyError> {
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
        let mut other_cursor = false;
        for _ in 0..MAX_EVENTS {
            match connection.poll_for_event()? {
                Some(Event::DamageNotify(event)) => {
                    damaged = true;
                    let area = event.area;
                    watch.note(Area::at(area.x.into(), area.y.into(), area.width, area.height));
                }
                Some(Event::XfixesCursorNotify(_)) => other_cursor = true,
                Some(_) => {}
                None => break,
            }
        }
        if damaged {
            // What is damaged from now on is told anew.
            connection.damage_subtract(damage, x11rb::NONE, x11rb::NONE)?;
        }
        // Its answer also says that all of this was done. The server draws the cursor without telling of it.
        cursor.follow(&connection, root, other_cursor, |area| watch.note(area))?;
        std::thread::sleep(pace);
    }
    Ok(())
}

/// Where the cursor was drawn last.
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
        other_cursor: bool,
        mut note: impl FnMut(Area),
    ) -> Result<(), ReplyError> {
        let pointer = connection.query_pointer(root)?.reply()?;
        let at = Some((pointer.root_x, pointer.root_y));
        if at == self.at && !other_cursor {
            return Ok(());
        }
        self.at = at;
        // The server refuses where there is no cursor.
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
