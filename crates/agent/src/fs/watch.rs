//! Watches directories for changes.
//!
//! Changes are stored for the reader up to a bound. If the bound is exceeded, or the kernel lost changes, the watch
//! ends, and its reason is reported to later callers, so that no change is omitted silently.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{Stream, stream};
use parking_lot::Mutex;
use rustix::fs::FileType;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::draft::{PREFIX, is_unused_name, unused_name};
use super::fault::{Fault, Field};
use super::names::{Walk, open_directory};
use super::path::Place;
use super::receive::blocking;
use crate::path_text::{from_text, to_text};
use crate::reply::line;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::fs::{Change, ChangeKind, MAX_WATCHES, Watch, WatchLine};

/// The maximum number of directories of one watch.
const MAX_DIRECTORIES: usize = 4096;
/// The maximum size of the changes that wait for a reader, in bytes.
const MAX_WAITING: usize = 1 << 20;
/// The maximum number of ended watches whose reason is stored.
const REMEMBERED: usize = 32;
const EVENTS: usize = 16 << 10;

const GONE: &str = "its directory was deleted or moved";
const BEHIND: &str = "more happened than was read, so that changes were lost";
const TOO_MANY: &str = "there came to be more directories in it than a watch has";
const FAILED: &str = "the system refused to watch a directory in it";
const STOPPED: &str = "it was stopped";

/// All watches of the session.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<KnownEntry>);

#[derive(Debug, Default)]
struct KnownEntry {
    running: HashMap<String, Arc<Running>>,
    ended: VecDeque<(String, &'static str)>,
}

impl KnownEntry {
    /// Stores the reason for the end of a watch, unless the watch has ended before.
    fn end(&mut self, id: &str, why: &'static str) {
        if self.running.remove(id).is_none() {
            return;
        }
        self.ended.push_back((id.to_owned(), why));
        if self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }
}

#[derive(Debug)]
struct Running {
    changes: Arc<AsyncMutex<mpsc::UnboundedReceiver<Change>>>,
    waiting: Arc<AtomicUsize>,
    stop: CancellationToken,
    /// The number of the last reader.
    readers: watch::Sender<u64>,
}

impl Watches {
    fn known(&self) -> parking_lot::MutexGuard<'_, KnownEntry> {
        self.0.lock()
    }

    pub(super) async fn start(self: &Arc<Self>, requested: Watch) -> Result<String, Fault> {
        let eyes = blocking(move || Eyes::open(&requested)).await?;
        let id = unused_name().trim_start_matches(PREFIX).to_owned();
        let (sender, changes) = mpsc::unbounded_channel();
        let running = Arc::new(Running {
            changes: Arc::new(AsyncMutex::new(changes)),
            waiting: Arc::default(),
            stop: CancellationToken::new(),
            readers: watch::Sender::new(0),
        });
        {
            let mut known = self.known();
            if known.running.len() >= MAX_WATCHES {
                let why = format!("the session has {MAX_WATCHES} watches, the most that there may be at once");
                return Err(Fault::new(ErrorCode::LimitReached, Field::Path, why));
            }
            known.running.insert(id.clone(), Arc::clone(&running));
        }
        let (watches, name) = (Arc::clone(self), id.clone());
        tokio::spawn(async move {
            let sink = ChangeSink { sender, waiting: Arc::clone(&running.waiting) };
            let why = tokio::select! {
                () = running.stop.cancelled() => STOPPED,
                why = eyes.watch(&sink) => why,
            };
            watches.known().end(&name, why);
        });
        Ok(id)
    }

    fn running(&self, id: &str) -> Result<Arc<Running>, Fault> {
        let known = self.known();
        let ended = || known.ended.iter().find(|(name, _)| name == id);
        known.running.get(id).cloned().ok_or_else(|| {
            let why = match ended() {
                Some((_, why)) => has_ended(why),
                None => "there is no such watch".to_owned(),
            };
            Fault::new(ErrorCode::Missing, Field::Path, why)
        })
    }

    pub(super) fn stop(&self, id: &str) -> Result<(), Fault> {
        self.running(id)?.stop.cancel();
        // Recorded at once and not when the task ends, so that later callers find the watch ended.
        self.known().end(id, STOPPED);
        Ok(())
    }

    /// Returns the changes, as lines. A later reader replaces an earlier one.
    pub(super) async fn read(
        self: &Arc<Self>,
        id: &str,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static, Fault> {
        let running = self.running(id)?;
        running.readers.send_modify(|reader| *reader += 1);
        let (turn, mut readers) = (*running.readers.borrow(), running.readers.subscribe());
        let mut changes = Arc::clone(&running.changes).lock_owned().await;
        let waiting = Arc::clone(&running.waiting);
        // A reference to the watch would keep its readers' channel open after its end.
        drop(running);
        let mut replaced = Box::pin(async move {
            // An error means that the watch has ended; the changes that wait are still read then.
            if readers.wait_for(|reader| *reader != turn).await.is_err() {
                std::future::pending::<()>().await;
            }
        });
        let mut watches = Some((Arc::clone(self), id.to_owned()));
        Ok(stream::poll_fn(move |context| {
            use std::future::Future as _;
            use std::task::Poll;
            if replaced.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            changes.poll_recv(context).map(|change| {
                let seen = match change {
                    Some(change) => {
                        waiting.fetch_sub(weight(&change), Ordering::Relaxed);
                        WatchLine::Change(change)
                    }
                    None => {
                        let (watches, id) = watches.take()?;
                        WatchLine::Ended { ended: has_ended(watches.why_ended(&id).filter(|why| *why != STOPPED)?) }
                    }
                };
                Some(Ok(line(&seen)))
            })
        }))
    }

    fn why_ended(&self, id: &str) -> Option<&'static str> {
        self.known().ended.iter().find(|(name, _)| name == id).map(|(_, why)| *why)
    }
}

fn has_ended(why: &str) -> String {
    format!("the watch has ended: {why}")
}

fn weight(change: &Change) -> usize {
    change.path.len() + size_of::<Change>()
}

/// Queues changes for the reader.
struct ChangeSink {
    sender: mpsc::UnboundedSender<Change>,
    waiting: Arc<AtomicUsize>,
}

impl ChangeSink {
    fn report(&self, kind: ChangeKind, path: &Path, is_dir: bool) -> Result<(), &'static str> {
        let change = Change { kind, path: to_text(path), is_dir };
        let weight = weight(&change);
        if self.waiting.fetch_add(weight, Ordering::Relaxed) + weight > MAX_WAITING {
            return Err(BEHIND);
        }
        self.sender.send(change).map_err(|_| STOPPED)
    }
}

/// The watched directories.
struct Eyes {
    inotify: AsyncFd<OwnedFd>,
    /// The path of each directory, as the caller named it, by the number of its inotify watch.
    places: HashMap<i32, PathBuf>,
    root: i32,
    recursive: bool,
    /// The entries of new directories that a scan has reported. The kernel reports an entry again if it was created
    /// during the scan, and has done so when no events are left.
    found: HashSet<PathBuf>,
}

impl Eyes {
    fn open(requested: &Watch) -> Result<Self, Fault> {
        let fault = |error: Errno| match error {
            Errno::NOSPC | Errno::MFILE | Errno::NOMEM => {
                Fault::new(ErrorCode::LimitReached, Field::Path, "the system has no room for more watches")
            }
            other => Fault::io(Field::Path, &requested.path, other.into()),
        };
        let (directory, _) = Place::directory(&requested.path, Field::Path)?;
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(fault)?;
        let root = add(&inotify, &directory, WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF).map_err(fault)?;
        #[expect(deprecated, reason = "its successor is unsafe; the descriptor is owned here and never exchanged")]
        let inotify = AsyncFd::new(inotify).map_err(|error| Fault::io(Field::Path, &requested.path, error))?;
        let places = HashMap::from([(root, from_text(&requested.path))]);
        let mut eyes = Self { inotify, places, root, recursive: requested.recursive, found: HashSet::new() };
        if requested.recursive {
            let below = eyes.below(directory, &from_text(&requested.path), None);
            below
                .map_err(|why| Fault::new(ErrorCode::LimitReached, Field::Path, format_args!("not watched: {why}")))?;
        }
        Ok(eyes)
    }

    /// Watches all directories below a watched one, and reports their entries to `sink`, if there is one.
    fn below(&mut self, directory: OwnedFd, at: &Path, sink: Option<&ChangeSink>) -> Result<(), &'static str> {
        let Ok(mut walk) = Walk::new(directory, at.to_owned()) else { return Ok(()) };
        while let Some(found) = walk.next() {
            let is_dir = FileType::from_raw_mode(found.stat.st_mode) == FileType::Directory;
            let place = at.join(walk.path());
            let is_ours = |part: &OsStr| is_unused_name(part.as_bytes());
            if let Some(sink) = sink.filter(|_| !walk.path().iter().any(is_ours)) {
                sink.report(ChangeKind::Create, &place, is_dir)?;
                self.found.insert(place.clone());
            }
            // A directory that was removed again or may not be read cannot be watched.
            let opened = walk.spot().filter(|_| is_dir).map(|(parent, name)| open_directory(parent, name));
            if let Some(Ok(directory)) = opened {
                self.look_at(&directory, place)?;
            }
        }
        Ok(())
    }

    fn look_at(&mut self, directory: &OwnedFd, place: PathBuf) -> Result<(), &'static str> {
        match add(self.inotify.get_ref(), directory, WatchFlags::empty()) {
            Ok(number) => {
                self.places.insert(number, place);
                if self.places.len() > MAX_DIRECTORIES { Err(TOO_MANY) } else { Ok(()) }
            }
            Err(Errno::NOENT | Errno::ACCESS) => Ok(()),
            Err(_) => Err(FAILED),
        }
    }

    /// Reports changes until the watch ends, and returns the reason for the end.
    async fn watch(mut self, sink: &ChangeSink) -> &'static str {
        loop {
            let batch = match self.inotify.readable().await {
                Ok(mut ready) => match ready.try_io(|inotify| events(inotify.get_ref())) {
                    Ok(Ok(batch)) => batch,
                    Ok(Err(_)) => return FAILED,
                    Err(_) => {
                        self.found = HashSet::new();
                        continue;
                    }
                },
                Err(_) => return FAILED,
            };
            for event in batch {
                if let Err(why) = self.event(event, sink) {
                    return why;
                }
            }
        }
    }

    fn event(&mut self, event: Event, sink: &ChangeSink) -> Result<(), &'static str> {
        let Event { number, flags, name } = event;
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Err(BEHIND);
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.places.remove(&number);
        }
        if number == self.root && flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED) {
            return Err(GONE);
        }
        let (Some(place), Some(name)) = (self.places.get(&number), name) else { return Ok(()) };
        if is_unused_name(&name) {
            // A temporary name of the agent. The final name is reported later.
            return Ok(());
        }
        let place = place.join(OsStr::from_bytes(&name));
        let is_dir = flags.contains(ReadFlags::ISDIR);
        let kind = if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            ChangeKind::Create
        } else if flags.contains(ReadFlags::MODIFY) {
            ChangeKind::Write
        } else if flags.contains(ReadFlags::DELETE) {
            ChangeKind::Delete
        } else if flags.contains(ReadFlags::MOVED_FROM) {
            ChangeKind::Rename
        } else {
            return Ok(());
        };
        if self.found.remove(&place) && flags.contains(ReadFlags::CREATE) {
            return Ok(());
        }
        sink.report(kind, &place, is_dir)?;
        if !(is_dir && self.recursive) {
            return Ok(());
        }
        match kind {
            ChangeKind::Create => self.came(&place, sink),
            ChangeKind::Rename => {
                self.went(&place);
                Ok(())
            }
            ChangeKind::Write | ChangeKind::Delete => Ok(()),
        }
    }

    /// Watches a new directory, and reports the entries that were created in it before.
    fn came(&mut self, place: &Path, sink: &ChangeSink) -> Result<(), &'static str> {
        let Some(parent) = place.parent() else { return Ok(()) };
        let Ok((parent, _)) = Place::directory(&to_text(parent), Field::Path) else { return Ok(()) };
        let Some(name) = place.file_name() else { return Ok(()) };
        let Ok(directory) = open_directory(parent.as_fd(), name) else { return Ok(()) };
        self.look_at(&directory, place.to_owned())?;
        self.below(directory, place, Some(sink))
    }

    /// Stops watching a directory that was moved away. If it was only renamed, its new name is reported next, and it is
    /// watched again.
    fn went(&mut self, place: &Path) {
        let gone: Vec<i32> =
            self.places.iter().filter(|(_, at)| at.starts_with(place)).map(|(number, _)| *number).collect();
        for number in gone {
            self.places.remove(&number);
            // The kernel may have removed the watch already.
            let _ = inotify::remove_watch(self.inotify.get_ref(), number);
        }
    }
}

fn add(inotify: &OwnedFd, directory: &OwnedFd, also: WatchFlags) -> Result<i32, Errno> {
    // Without the events of files that have no name any more, or none yet.
    let flags = WatchFlags::EXCL_UNLINK
        | WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::DELETE
        | WatchFlags::MOVE
        | WatchFlags::ONLYDIR;
    inotify::add_watch(inotify, format!("/proc/self/fd/{}", directory.as_raw_fd()), flags | also)
}

struct Event {
    number: i32,
    flags: ReadFlags,
    name: Option<Vec<u8>>,
}

/// Reads the events since the last call, as many as fit.
fn events(inotify: &OwnedFd) -> io::Result<Vec<Event>> {
    let mut buffer = [MaybeUninit::uninit(); EVENTS];
    let mut reader = Reader::new(inotify, &mut buffer);
    let mut batch = Vec::new();
    loop {
        let event = reader.next()?;
        let name = event.file_name().map(|name| name.to_bytes().to_vec());
        batch.push(Event { number: event.wd(), flags: event.events(), name });
        if reader.is_buffer_empty() {
            return Ok(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    /// The kernel watches a new directory before it is scanned, so an entry that is created in between is reported by
    /// both.
    #[tokio::test]
    async fn changes_during_the_scan_of_a_new_directory_are_reported_once() {
        let root = tempfile::tempdir().expect("a directory");
        let place = |name: &str| root.path().join(name);
        let requested = Watch { path: root.path().to_string_lossy().into_owned(), recursive: true };
        let mut eyes = Eyes::open(&requested).expect("it is watched");
        fs::create_dir(place("new")).expect("made");
        fs::write(place("new/before"), "").expect("written");
        let new = OwnedFd::from(fs::File::open(place("new")).expect("there"));
        eyes.look_at(&new, place("new")).expect("it is watched");
        fs::write(place("new/meanwhile"), "").expect("written");
        fs::create_dir(place("new/below")).expect("made");
        let ours = unused_name();
        fs::write(place("new/below").join(&ours), "").expect("written");

        let (sender, mut changes) = mpsc::unbounded_channel();
        let sink = ChangeSink { sender, waiting: Arc::default() };
        let watching = async {
            tokio::select! {
                why = eyes.watch(&sink) => panic!("it has ended: {why}"),
                all = async {
                    let mut all = until(root.path(), &mut changes, (ChangeKind::Create, "new/before")).await;
                    fs::write(place("marked"), "").expect("written");
                    all.extend(until(root.path(), &mut changes, (ChangeKind::Create, "marked")).await);
                    fs::remove_file(place("new/before")).expect("removed");
                    fs::write(place("new/before"), "").expect("written");
                    fs::write(place("new/below/after"), "").expect("written");
                    all.extend(until(root.path(), &mut changes, (ChangeKind::Create, "new/below/after")).await);
                    all
                } => all,
            }
        };
        let seen = tokio::time::timeout(Duration::from_secs(60), watching).await.expect("all is told");

        let times = |kind, path: &str| seen.iter().filter(|change| **change == (kind, path.to_owned())).count();
        assert_eq!(times(ChangeKind::Create, "new"), 1, "{seen:?}");
        assert_eq!(times(ChangeKind::Create, "new/meanwhile"), 1, "{seen:?}");
        assert_eq!(times(ChangeKind::Create, "new/below"), 1, "{seen:?}");
        assert_eq!(times(ChangeKind::Delete, "new/before"), 1, "{seen:?}");
        assert_eq!(times(ChangeKind::Create, "new/before"), 2, "{seen:?}");
        assert!(!seen.iter().any(|(_, path)| path.contains(&ours)), "{seen:?}");
    }

    /// Returns the changes up to `last`, with paths below `root`.
    async fn until(
        root: &Path,
        changes: &mut mpsc::UnboundedReceiver<Change>,
        last: (ChangeKind, &str),
    ) -> Vec<(ChangeKind, String)> {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|(kind, path): &(_, String)| (*kind, path.as_str()) != last) {
            let Change { kind, path, .. } = changes.recv().await.expect("it goes on");
            let path = Path::new(&path).strip_prefix(root).expect("below").to_owned();
            seen.push((kind, path.to_string_lossy().into_owned()));
        }
        seen
    }
}
