//! The handlers that use the mouse and the keyboard.
//!
//! The calls of one session run one at a time, in the order of their arrival. If a caller disconnects during its call,
//! the call ends, and the keys and buttons that it holds are released.

use actix_web::HttpResponse;
use casement_domain::computer::ActionRequest;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::body::{Batch, SetCursor};
use crate::{
    answer::{self, Answer},
    error::ApiError,
    request::{ActiveSession, Request},
    schema::ToSchema,
};

/// The position of the mouse, in pixels of the display from its upper left corner.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MousePosition {
    x: u32,
    y: u32,
}

/// The cursor was hidden or shown.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CursorSet {
    /// Always true.
    ok: bool,
}

/// Performs the one action that the body `T` requests.
pub(crate) async fn perform<T: DeserializeOwned + Into<ActionRequest>>(mut request: Request<ActiveSession>) -> Answer {
    act::<T>(&mut request).await?;
    Ok(answer::nothing())
}

async fn act<T: DeserializeOwned + Into<ActionRequest>>(request: &mut Request<ActiveSession>) -> Result<(), ApiError> {
    let action = request.json::<T>().await?.into();
    Ok(request.services().computers.perform(request.session(), action).await?)
}

pub(crate) async fn get_mouse_position(request: Request<ActiveSession>) -> Answer {
    let place = request.services().computers.mouse(request.session()).await?;
    Ok(HttpResponse::Ok().json(MousePosition { x: place.x, y: place.y }))
}

pub(crate) async fn set_cursor(mut request: Request<ActiveSession>) -> Answer {
    act::<SetCursor>(&mut request).await?;
    Ok(HttpResponse::Ok().json(CursorSet { ok: true }))
}

pub(crate) async fn batch(mut request: Request<ActiveSession>) -> Answer {
    let items = request.json::<Batch>().await?.items();
    request.services().computers.batch(request.session(), items).await?;
    Ok(answer::nothing())
}
