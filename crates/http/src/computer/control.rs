//! Use the mouse and the keyboard.
//!
//! Calls of one session are done one after the other, in the order they came. A caller that goes in the middle of one ends it, and
//! what it held is let go.

use actix_web::HttpResponse;
use casement_domain::computer::ActionRequest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use super::body::{Batch, ClickMouse, DragMouse, MoveMouse, PressKey, Scroll, SetCursor, TypeText};
use crate::{
    answer::{self, Answer},
    caller::SessionAccess,
    error::{ApiError, ErrorBody},
};

/// Where the mouse is, in pixels of the display from its upper left corner.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MousePosition {
    x: u32,
    y: u32,
}

/// Done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CursorSet {
    /// True.
    ok: bool,
}

async fn perform<T: DeserializeOwned + Into<ActionRequest>>(inside: &mut SessionAccess) -> Result<(), ApiError> {
    let wish = inside.json::<T>().await?.into();
    Ok(inside.services().computers.perform(&inside.session, wish).await?)
}

/// Clicks at a place.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/click_mouse", tag = "Computer", request_body = ClickMouse,
    params(("id" = String, Path)),
    responses(
        (status = 204, description = "Done"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn click_mouse(mut inside: SessionAccess) -> Answer {
    perform::<ClickMouse>(&mut inside).await?;
    Ok(answer::nothing())
}

/// Moves the mouse.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/move_mouse", tag = "Computer", request_body = MoveMouse,
    params(("id" = String, Path)),
    responses(
        (status = 204, description = "Done"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn move_mouse(mut inside: SessionAccess) -> Answer {
    perform::<MoveMouse>(&mut inside).await?;
    Ok(answer::nothing())
}

/// Presses a button at the first point of a path, moves along it and lets go.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/drag_mouse", tag = "Computer", request_body = DragMouse,
    params(("id" = String, Path)),
    responses(
        (status = 204, description = "Done"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn drag_mouse(mut inside: SessionAccess) -> Answer {
    perform::<DragMouse>(&mut inside).await?;
    Ok(answer::nothing())
}

/// Turns the wheel at a place.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/scroll", tag = "Computer", request_body = Scroll,
    params(("id" = String, Path)),
    responses(
        (status = 204, description = "Done"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn scroll(mut inside: SessionAccess) -> Answer {
    perform::<Scroll>(&mut inside).await?;
    Ok(answer::nothing())
}

/// Presses keys.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/press_key", tag = "Computer", request_body = PressKey,
    params(("id" = String, Path)),
    responses(
        (status = 204, description = "Done"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn press_key(mut inside: SessionAccess) -> Answer {
    perform::<PressKey>(&mut inside).await?;
    Ok(answer::nothing())
}

/// Types text exactly, whatever its language and the keyboard.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/type", tag = "Computer", request_body = TypeText,
    params(("id" = String, Path)),
    responses(
        (status = 204, description = "Done"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn type_text(mut inside: SessionAccess) -> Answer {
    perform::<TypeText>(&mut inside).await?;
    Ok(answer::nothing())
}

/// Says where the mouse is.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/get_mouse_position", tag = "Computer",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = MousePosition),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn get_mouse_position(inside: SessionAccess) -> Answer {
    let place = inside.services().computers.mouse(&inside.session).await?;
    Ok(HttpResponse::Ok().json(MousePosition { x: place.x, y: place.y }))
}

/// Hides or shows the mouse cursor in live views and recordings; screenshots are without it in any case.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/cursor", tag = "Computer", request_body = SetCursor,
    params(("id" = String, Path)),
    responses(
        (status = 200, body = CursorSet),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "The browser does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn set_cursor(mut inside: SessionAccess) -> Answer {
    perform::<SetCursor>(&mut inside).await?;
    Ok(HttpResponse::Ok().json(CursorSet { ok: true }))
}

/// Does several things in order. All of them are checked first; the first that fails ends it, and the message names it.
#[utoipa::path(
    post, path = "/browsers/{id}/computer/batch", tag = "Computer", request_body = Batch,
    params(("id" = String, Path)),
    responses(
        (status = 204, description = "All of it is done"),
        (status = 400, description = "A field breaks a rule; nothing was done", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = "5XX", description = "An action failed, `actions[3]: …`: those before it are done", body = ErrorBody),
    )
)]
pub(crate) async fn batch(mut inside: SessionAccess) -> Answer {
    let items = inside.json::<Batch>().await?.items();
    inside.services().computers.batch(&inside.session, items).await?;
    Ok(answer::nothing())
}
