//! Files that a client names in a connection.
//!
//! Paths in commands are those of the session, and a client on another machine usually means its own. Chromium accepts a
//! path that does not exist, and the page gets an empty file. So the relay looks for the commands that name files, and
//! refuses them if the session has no such file; a download directory that it does not have becomes its own. The end of a
//! WebDriver session of a remote browser is answered here too: it would end the browser there, and is a mere detachment
//! here. A header of requests that the egress proxy renames is renamed in the events of CDP too. Everything else passes
//! as it is.

mod command;
mod directories;
mod download_events;
mod events;
mod request_headers;
mod scanner;

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use self::{
    command::{Command, SetFiles},
    directories::NamedDirectory,
    events::{Cut, Kind, cut, take_event},
    scanner::{Message, MessageScanner, Part},
};
use super::{Channel, FrameTracker, wire};

pub(crate) use self::directories::of_classic as directory_of_classic;

/// The files of one session.
#[async_trait]
pub trait SessionFiles: Send + Sync {
    /// Returns the first of `paths` at which the session has nothing, or nothing that its browser can reach; `None` if
    /// there is none, or if it cannot be found out now.
    async fn first_missing(&self, paths: Vec<String>) -> Option<String>;

    /// Returns where the files are.
    fn location(&self) -> FilesLocation {
        FilesLocation::Session
    }
}

/// The machine of the files that commands name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesLocation {
    /// The session's sandbox, whose files the API reads and writes.
    Session,
    /// The machine of a remote browser.
    Remote,
}

/// The look at the commands of one client that name files.
pub(crate) struct FileCommands {
    channel: Channel,
    files: Arc<dyn SessionFiles>,
    scanner: MessageScanner,
    parts: VecDeque<Part>,
    check: Option<Check>,
    /// The response to a refused command. Until it is sent, no further message of the client is handled.
    response: Option<Bytes>,
    marks_downloads: bool,
    /// Whether the client ended its WebDriver session, which the server answered.
    detached: bool,
}

/// A command whose paths are looked up. Until it is done, no further message of the client is handled.
struct Check {
    message: Message,
    on_missing: OnMissing,
    missing: Pin<Box<dyn Future<Output = Option<String>>>>,
}

/// What is done with a command if a path of it does not exist.
enum OnMissing {
    Refuse(SetFiles),
    ReplaceBy(String),
}

impl FileCommands {
    pub(crate) fn new(channel: Channel, files: Arc<dyn SessionFiles>) -> Self {
        Self {
            channel,
            files,
            scanner: MessageScanner::new(command::words(channel)),
            parts: VecDeque::new(),
            check: None,
            response: None,
            marks_downloads: false,
            detached: false,
        }
    }

    /// Takes the next bytes of the client.
    pub(crate) fn feed(&mut self, chunk: Bytes) {
        self.scanner.scan(chunk, &mut self.parts);
    }

    /// Returns the next bytes for the browser; `None` if more bytes of the client are needed.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if self.response.is_some() || self.detached {
                // The connection polls again when it has taken the response.
                return Poll::Pending;
            }
            if let Some(check) = &mut self.check {
                let missing = ready!(check.missing.as_mut().poll(cx));
                let Some(Check { message, on_missing, .. }) = self.check.take() else { continue };
                match (on_missing, missing) {
                    (OnMissing::Refuse(command), Some(path)) => {
                        let refusal = command.refusal(&path, self.files.location());
                        self.response = Some(wire::encode(wire::TEXT, refusal.as_bytes(), None));
                        continue;
                    }
                    (OnMissing::ReplaceBy(other), Some(_)) => return Poll::Ready(Some(message.replaced_by(&other))),
                    (_, None) => return Poll::Ready(Some(message.raw)),
                }
            }
            match self.parts.pop_front() {
                None => return Poll::Ready(None),
                Some(Part::Bytes(bytes)) => return Poll::Ready(Some(bytes)),
                Some(Part::Message(message)) => {
                    if let Some(bytes) = self.handle(message) {
                        return Poll::Ready(Some(bytes));
                    }
                }
            }
        }
    }

    /// Returns the bytes for the browser, or begins a check.
    fn handle(&mut self, message: Message) -> Option<Bytes> {
        match Command::parse(self.channel, self.files.location(), &message.text) {
            Command::SetFiles(command) => {
                self.look_up(command.paths.clone(), message, OnMissing::Refuse(command));
                None
            }
            Command::SetDirectory(NamedDirectory { path, replacement }) => {
                self.look_up(vec![path], message, OnMissing::ReplaceBy(replacement));
                None
            }
            Command::PlaywrightDownloads(replacement) => {
                self.marks_downloads = true;
                Some(message.replaced_by(&replacement))
            }
            Command::EndSession(answer) => {
                self.detached = true;
                self.response = Some(wire::encode(wire::TEXT, answer.as_bytes(), None));
                None
            }
            Command::CancelDownload(replacement) => Some(message.replaced_by(&replacement)),
            Command::Other => Some(message.raw),
        }
    }

    fn look_up(&mut self, paths: Vec<String>, message: Message, on_missing: OnMissing) {
        let files = self.files.clone();
        let missing = Box::pin(async move { files.first_missing(paths).await });
        self.check = Some(Check { message, on_missing, missing });
    }

    /// Returns whether the client ended its WebDriver session, and has taken the answer.
    pub(crate) fn has_detached(&self) -> bool {
        self.detached && self.response.is_none()
    }

    /// Returns the events of the browser that are rewritten for the client. A remote browser has no egress proxy.
    fn rewritten(&self) -> &'static [Kind] {
        match (self.channel, self.files.location(), self.marks_downloads) {
            (Channel::Cdp, FilesLocation::Session, false) => &[Kind::RequestHeaders],
            (Channel::Cdp, FilesLocation::Session, true) => &[Kind::RequestHeaders, Kind::Download],
            (_, _, true) => &[Kind::Download],
            (_, _, false) => &[],
        }
    }

    /// Takes the next bytes for the client: a response of its own between two frames, or bytes of the browser from the
    /// beginning of `buffer`. `None` if more bytes of the browser are needed.
    pub(crate) fn take_for_client(&mut self, buffer: &mut BytesMut, tracker: &FrameTracker) -> Option<Bytes> {
        if tracker.between_frames() && self.response.is_some() {
            return self.response.take();
        }
        if buffer.is_empty() {
            return None;
        }
        let rest = tracker.rest_of_frame(buffer);
        if self.response.is_some() {
            return Some(buffer.split_to(rest).freeze());
        }
        let kinds = self.rewritten();
        if kinds.is_empty() {
            return Some(buffer.split().freeze());
        }
        match cut(buffer, rest, kinds) {
            Cut::Bytes(length) => Some(buffer.split_to(length).freeze()),
            Cut::Event(kind) => Some(take_event(buffer, kind, self.files.location())),
            Cut::Nothing => None,
        }
    }
}
