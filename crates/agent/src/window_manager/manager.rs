//! What happens on the display, and what the window manager does about it.

use std::sync::Arc;

use x11rb::connection::Connection as _;
use x11rb::errors::ReplyOrIdError;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    Allow, ButtonIndex, ButtonPressEvent, ChangeWindowAttributesAux, ClientMessageEvent, ConfigWindow,
    ConfigureNotifyEvent, ConfigureRequestEvent, ConfigureWindowAux, ConnectionExt as _, EventMask, GrabMode,
    InputFocus, ModMask, StackMode, UnmapNotifyEvent, Window,
};
use x11rb::rust_connection::RustConnection;

use super::file_dialog;
use super::hints::{Hints, Kind, Result, Visibility};
use super::place::Place;
use super::shared::Shared;
use super::window::{Change, Managed};

/// The maximum number of managed windows. Any program of the session can open windows without end.
const MAX_WINDOWS: usize = 500;
/// The bit of an event that another program has sent.
const SENT: u8 = 0x80;
/// The buttons that are the wheel, which does not bring a window to the front.
const WHEEL: std::ops::RangeInclusive<u8> = 4..=7;
/// The value of `WM_CHANGE_STATE` that requests a window to be minimized.
const ICONIC: u32 = 3;

/// The window manager. It has the windows in the order of the display, the lowest first: the window in front came to
/// the front last, the one below it before.
pub(super) struct Manager {
    connection: RustConnection,
    root: Window,
    hints: Hints,
    shared: Arc<Shared>,
    display: Place,
    windows: Vec<Managed>,
    active: Option<Window>,
}

impl Manager {
    pub(super) fn new(connection: RustConnection, screen: usize, shared: Arc<Shared>) -> Result<Self> {
        let root = connection.setup().roots.get(screen).map_or(0, |screen| screen.root);
        let redirect = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY | EventMask::STRUCTURE_NOTIFY;
        let aux = ChangeWindowAttributesAux::new().event_mask(redirect);
        // Refused if the display has a window manager.
        connection.change_window_attributes(root, &aux)?.check()?;
        let size = connection.get_geometry(root)?.reply()?;
        let hints = Hints::announce(&connection, root)?;
        connection.flush()?;
        let display = Place::whole(size.width, size.height);
        Ok(Self { connection, root, hints, shared, display, windows: Vec::new(), active: None })
    }

    /// Returns the window and the name of the messages that [`settle`](super::WindowManager::settle) sends.
    pub(super) fn address(&self) -> (Window, u32) {
        (self.hints.check(), self.hints.atoms._CASEMENT_SETTLE)
    }

    /// Runs until the X server ends, or another window manager takes over.
    pub(super) fn run(mut self) {
        if let Err(error) = self.follow() {
            tracing::debug!(%error, "the window manager has ended");
        }
        self.shared.end();
    }

    fn follow(&mut self) -> Result<()> {
        loop {
            self.connection.flush()?;
            let event = self.connection.wait_for_event()?;
            if let Event::SelectionClear(lost) = &event
                && lost.owner == self.hints.check()
            {
                return Ok(());
            }
            match self.handle(event) {
                // The window has closed meanwhile, which its own event reports.
                Err(error @ ReplyOrIdError::X11Error(_)) => tracing::debug!(%error, "a window refused"),
                other => other?,
            }
        }
    }

    fn handle(&mut self, event: Event) -> Result<()> {
        match event {
            Event::MapRequest(request) => self.map(request.window),
            Event::ConfigureRequest(request) => self.configure(&request),
            Event::UnmapNotify(report) => self.unmapped(&report),
            Event::DestroyNotify(report) => self.forget(report.window),
            Event::ConfigureNotify(report) if report.window == self.root => {
                self.resized(Place::whole(report.width, report.height))
            }
            Event::ClientMessage(message) => self.message(&message),
            Event::ButtonPress(press) => self.pressed(&press),
            Event::KeyPress(press) => self.accept(press.event),
            _ => Ok(()),
        }
    }

    fn find(&mut self, window: Window) -> Option<&mut Managed> {
        self.windows.iter_mut().find(|managed| managed.id == window)
    }

    /// Shows a new window, or a minimized one.
    fn map(&mut self, window: Window) -> Result<()> {
        if self.find(window).is_some() {
            return self.activate(window);
        }
        if self.windows.len() >= MAX_WINDOWS {
            return Ok(self.connection.map_window(window).map(drop)?);
        }
        let wishes = self.hints.wishes(&self.connection, window)?;
        let geometry = self.connection.get_geometry(window)?.reply()?;
        let wanted = Place {
            x: geometry.x.into(),
            y: geometry.y.into(),
            width: geometry.width.into(),
            height: geometry.height.into(),
        };
        let display = self.display;
        let parent =
            wishes.parent.and_then(|parent| self.find(parent)).map(|parent| (parent.id, parent.shown_at(display)));
        let place = match wishes.kind {
            Kind::Tabbed if self.shared.is_filling() => display,
            Kind::Dialog | Kind::Files => wanted.centred_on(parent.map_or(display, |(_, place)| place)),
            Kind::Tabbed | Kind::PopUp | Kind::Other => wanted,
        };
        let mut managed = Managed::new(window, &wishes, place.within(display), &self.hints.atoms);
        managed.parent = match wishes.kind {
            // Nothing else leads a person back to a pop-up below its opener.
            Kind::PopUp if wishes.focus && parent.is_none() => self.opener(),
            _ => parent.map(|(parent, _)| parent),
        };
        let is_behind = !wishes.focus && managed.parent.is_none() && self.active.is_some();
        // A window that opens in the background appears below the one in front.
        self.windows.insert(if is_behind { 0 } else { self.windows.len() }, managed);
        self.hints.report_frame(&self.connection, window)?;
        self.show(window)?;
        self.watch_clicks(window)?;
        if wishes.kind == Kind::Files {
            file_dialog::take_enter(&self.connection, window)?;
        }
        self.connection.map_window(window)?;
        match wishes.focus || self.active.is_none() {
            true => self.activate(window),
            false => self.restack(),
        }
    }

    /// Puts a window where it belongs in its state, and says so.
    fn show(&mut self, window: Window) -> Result<()> {
        let (display, atoms) = (self.display, self.hints.atoms);
        let Some(managed) = self.find(window) else { return Ok(()) };
        let place = managed.shown_at(display);
        let (seen, states) = (managed.visibility(), managed.states(&atoms));
        self.hints.report(&self.connection, window, seen, &states)?;
        let side = |side: i32| u32::try_from(side).unwrap_or(1);
        let aux = ConfigureWindowAux::new()
            .x(place.x)
            .y(place.y)
            .width(side(place.width))
            .height(side(place.height))
            .border_width(0);
        self.connection.configure_window(window, &aux)?;
        self.report_place(window, place)
    }

    /// Tells a window its place: the X server reports only changes.
    fn report_place(&self, window: Window, place: Place) -> Result<()> {
        let edge = |edge: i32| i16::try_from(edge).unwrap_or(0);
        let side = |side: i32| u16::try_from(side).unwrap_or(1);
        let report = ConfigureNotifyEvent {
            response_type: x11rb::protocol::xproto::CONFIGURE_NOTIFY_EVENT,
            sequence: 0,
            event: window,
            window,
            above_sibling: 0,
            x: edge(place.x),
            y: edge(place.y),
            width: side(place.width),
            height: side(place.height),
            border_width: 0,
            override_redirect: false,
        };
        Ok(self.connection.send_event(false, window, EventMask::STRUCTURE_NOTIFY, report).map(drop)?)
    }

    /// A window asks for another place, or to come to the front.
    fn configure(&mut self, request: &ConfigureRequestEvent) -> Result<()> {
        let asks = |what: ConfigWindow| request.value_mask.contains(what);
        let (display, filling) = (self.display, self.shared.is_filling());
        let Some(managed) = self.find(request.window) else {
            // A window that is not shown yet is placed when it is.
            let aux = ConfigureWindowAux::from_configure_request(request);
            return Ok(self.connection.configure_window(request.window, &aux).map(drop)?);
        };
        let mut place = managed.place;
        for (what, edge, requested) in [
            (ConfigWindow::X, &mut place.x, i32::from(request.x)),
            (ConfigWindow::Y, &mut place.y, i32::from(request.y)),
            (ConfigWindow::WIDTH, &mut place.width, i32::from(request.width)),
            (ConfigWindow::HEIGHT, &mut place.height, i32::from(request.height)),
        ] {
            if asks(what) {
                *edge = requested;
            }
        }
        if managed.is_normal() && !(filling && managed.kind == Kind::Tabbed) {
            managed.place = place.within(display);
        }
        self.show(request.window)?;
        let is_raise = asks(ConfigWindow::STACK_MODE) && !asks(ConfigWindow::SIBLING);
        if is_raise && request.stack_mode == StackMode::ABOVE {
            self.raise(request.window);
            return self.restack();
        }
        Ok(())
    }

    fn unmapped(&mut self, report: &UnmapNotifyEvent) -> Result<()> {
        let is_sent = report.response_type & SENT != 0;
        match self.find(report.window) {
            Some(managed) if !is_sent && managed.hidings > 0 => {
                managed.hidings -= 1;
                Ok(())
            }
            Some(_) => {
                self.hints.report(&self.connection, report.window, Visibility::Withdrawn, &[])?;
                self.forget(report.window)
            }
            None => Ok(()),
        }
    }

    /// Forgets a closed window. The keyboard goes to the window that is in front now.
    fn forget(&mut self, window: Window) -> Result<()> {
        let before = self.windows.len();
        let parent = self.find(window).and_then(|managed| managed.parent);
        self.windows.retain(|managed| managed.id != window);
        for orphan in self.windows.iter_mut().filter(|managed| managed.parent == Some(window)) {
            orphan.parent = None;
        }
        if self.windows.len() == before {
            return Ok(());
        }
        if self.active == Some(window) {
            self.active = None;
            return self.activate_front(parent);
        }
        self.restack()
    }

    /// Activates a window's parent if it is visible, otherwise the visible window in front.
    fn activate_front(&mut self, parent: Option<Window>) -> Result<()> {
        let visible = |managed: &&Managed| !managed.minimized;
        let parent = self.windows.iter().filter(visible).find(|managed| Some(managed.id) == parent);
        match parent.or_else(|| self.windows.iter().rfind(visible)).map(|managed| managed.id) {
            Some(next) => self.activate(next),
            None => {
                self.active = None;
                // This window takes no keys.
                self.connection.set_input_focus(InputFocus::PARENT, self.hints.check(), x11rb::CURRENT_TIME)?;
                self.restack()
            }
        }
    }

    /// Brings a window to the front and gives it the keyboard; if it has a dialog, the dialog gets it.
    fn activate(&mut self, window: Window) -> Result<()> {
        let Some(managed) = self.find(window) else { return Ok(()) };
        if std::mem::take(&mut managed.minimized) {
            self.show(window)?;
            self.connection.map_window(window)?;
        }
        self.raise(window);
        let target = self.dialog_of(window);
        if let Some(before) = self.active.replace(target).filter(|before| *before != target) {
            self.watch_clicks(before)?;
        }
        self.connection.ungrab_button(ButtonIndex::ANY, target, ModMask::ANY)?;
        self.connection.set_input_focus(InputFocus::PARENT, target, x11rb::CURRENT_TIME)?;
        if self.find(target).is_some_and(|managed| managed.take_focus) {
            self.hints.send(&self.connection, target, self.hints.atoms.WM_TAKE_FOCUS)?;
        }
        self.restack()
    }

    /// Returns the dialog in front of a window, or of its dialog, or else the window.
    fn dialog_of(&self, window: Window) -> Window {
        let mut target = window;
        let is_above = |one: &&Managed, below: Window| one.parent == Some(below) && one.is_dialog() && !one.minimized;
        // A window's parent was there before it, so this ends.
        while let Some(dialog) = self.windows.iter().rev().find(|one| is_above(one, target)) {
            target = dialog.id;
        }
        target
    }

    /// Returns the window that opens a pop-up now: the browser's window in front.
    fn opener(&self) -> Option<Window> {
        let front = self.windows.iter().find(|managed| Some(managed.id) == self.active)?;
        matches!(front.kind, Kind::Tabbed | Kind::PopUp).then_some(front.id)
    }

    /// Moves a window to the front, with the windows that it stays in front of and those that stay in front of it.
    fn raise(&mut self, window: Window) {
        let mut line = vec![window];
        while let Some(parent) = self.windows.iter().find(|one| Some(&one.id) == line.last()).and_then(|one| one.parent)
        {
            line.push(parent);
        }
        for raised in line.into_iter().rev() {
            if let Some(at) = self.windows.iter().position(|managed| managed.id == raised) {
                let managed = self.windows.remove(at);
                self.windows.push(managed);
            }
        }
    }

    /// Gives the display the order of the windows, with each above the one that it stays in front of, and lists them.
    fn restack(&mut self) -> Result<()> {
        let mut order = Vec::new();
        self.order_of(None, &mut order);
        self.windows.sort_by_key(|managed| order.iter().position(|id| *id == managed.id));
        for pair in order.windows(2) {
            let aux = ConfigureWindowAux::new().sibling(pair[0]).stack_mode(StackMode::ABOVE);
            self.connection.configure_window(pair[1], &aux)?;
        }
        self.hints.list(&self.connection, &order, self.active)?;
        let of_browser = self.windows.iter().filter(|managed| matches!(managed.kind, Kind::Tabbed | Kind::PopUp));
        self.shared.publish(of_browser.map(|managed| managed.id).collect(), self.active);
        Ok(())
    }

    /// Appends the windows that stay in front of `parent`, each followed by those that stay in front of it.
    fn order_of(&self, parent: Option<Window>, order: &mut Vec<Window>) {
        for managed in self.windows.iter().filter(|managed| managed.parent == parent) {
            order.push(managed.id);
            self.order_of(Some(managed.id), order);
        }
    }

    /// The display has another size: windows with tabs fill it, and all others stay within it.
    fn resized(&mut self, display: Place) -> Result<()> {
        if display == self.display {
            return Ok(());
        }
        self.display = display;
        for managed in &mut self.windows {
            managed.place = if managed.kind == Kind::Tabbed { display } else { managed.place.within(display) };
        }
        let all: Vec<Window> = self.windows.iter().map(|managed| managed.id).collect();
        all.into_iter().try_for_each(|window| self.show(window))
    }

    fn message(&mut self, message: &ClientMessageEvent) -> Result<()> {
        let atoms = self.hints.atoms;
        let (window, data) = (message.window, message.data.as_data32());
        match message.type_ {
            kind if kind == atoms._CASEMENT_SETTLE => return self.settled(data[0]),
            kind if kind == atoms._NET_REQUEST_FRAME_EXTENTS => {
                return self.hints.report_frame(&self.connection, window);
            }
            kind if kind == atoms._NET_CLOSE_WINDOW => {
                return self.hints.send(&self.connection, window, atoms.WM_DELETE_WINDOW);
            }
            kind if kind == atoms._NET_ACTIVE_WINDOW => return self.activate(window),
            kind if kind == atoms.WM_CHANGE_STATE && data[0] == ICONIC => return self.minimize(window),
            kind if kind == atoms._NET_WM_STATE => {}
            _ => return Ok(()),
        }
        let (Some(change), Some(managed)) = (Change::of(data[0]), self.find(window)) else { return Ok(()) };
        managed.change(change, data[1], &atoms);
        managed.change(change, data[2], &atoms);
        self.show(window)
    }

    fn minimize(&mut self, window: Window) -> Result<()> {
        let Some(managed) = self.find(window).filter(|managed| !managed.minimized) else { return Ok(()) };
        managed.minimized = true;
        managed.hidings += 1;
        self.show(window)?;
        // It is the lowest, so that the one before it is in front.
        if let Some(at) = self.windows.iter().position(|managed| managed.id == window) {
            let managed = self.windows.remove(at);
            self.windows.insert(0, managed);
        }
        // The keyboard goes elsewhere before the window disappears, not to the window's parent.
        if self.active == Some(window) {
            self.active = None;
            self.activate_front(None)?;
        }
        self.connection.unmap_window(window)?;
        self.restack()
    }

    /// Grabs the buttons on a window without the keyboard, so that a click brings it to the front.
    fn watch_clicks(&self, window: Window) -> Result<()> {
        let (mode, any) = (GrabMode::SYNC, ModMask::ANY);
        let event = EventMask::BUTTON_PRESS;
        self.connection.grab_button(false, window, event, mode, mode, 0_u32, 0_u32, ButtonIndex::ANY, any)?;
        Ok(())
    }

    /// A button was pressed on a window without the keyboard. Mouse and keyboard stand still until this is done; then
    /// the window receives the press.
    fn pressed(&mut self, press: &ButtonPressEvent) -> Result<()> {
        let activated = match WHEEL.contains(&press.detail) {
            true => Ok(()),
            false => self.activate(press.event),
        };
        self.connection.allow_events(Allow::REPLAY_POINTER, press.time)?;
        self.connection.allow_events(Allow::ASYNC_KEYBOARD, press.time)?;
        activated
    }

    /// The Enter key was pressed in a dialog for files.
    fn accept(&mut self, window: Window) -> Result<()> {
        let display = self.display;
        let place = self.find(window).map(|managed| managed.shown_at(display));
        place.map_or(Ok(()), |place| file_dialog::accept(&self.connection, self.root, place))
    }

    fn settled(&self, number: u32) -> Result<()> {
        // The reply confirms all requests before it.
        self.connection.get_input_focus()?.reply()?;
        self.shared.answer(number);
        Ok(())
    }
}
