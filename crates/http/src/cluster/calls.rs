//! Answers the calls of other nodes.

use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use super::{
    headers::Hop,
    peers::{HandOutAnswer, Nothing, PeerCall, Received},
};
use crate::{
    answer::Answer,
    error::{ApiError, Code},
    not_supported,
    operation::Requirement,
    request::{Admitted, Credential, Request},
    state::Api,
};

/// The connection of another node. To clients the route does not exist.
pub(crate) struct OtherNode;

impl Credential for OtherNode {
    type Access = ();

    const REQUIREMENT: Requirement = Requirement::None;

    async fn admit(_: &Api, request: &HttpRequest) -> Result<Admitted<()>, ApiError> {
        match Hop::of(request) {
            Some(Hop { key: None, .. }) => Ok(Admitted::Here(())),
            _ => Err(not_supported::unknown_route(request)),
        }
    }
}

/// `POST /cluster/calls`: carries out a call of another node.
pub(crate) async fn answer_call(mut request: Request<OtherNode>) -> Answer {
    let call: PeerCall = request.json().await?;
    let call = Received::try_from(call).map_err(|bad| ApiError::new(Code::BadRequest, bad.to_string()))?;
    let requests = request.services().peer_requests.clone();
    // Runs to its end, even if the other node disconnects.
    let work = async move {
        Ok::<_, ApiError>(match call {
            Received::HandOut(session, profile) => {
                let result = requests.hand_out(session, profile).await?;
                json!(HandOutAnswer::from(result))
            }
            Received::Undelivered(session) => {
                requests.undelivered(session).await?;
                json!(Nothing {})
            }
            Received::CarryOutEnd(session) => {
                requests.carry_out_end(session).await?;
                json!(Nothing {})
            }
            Received::Inform(notice) => {
                requests.inform(notice).await?;
                json!(Nothing {})
            }
        })
    };
    let answer = request.services().runtime.spawn(work).await.map_err(ApiError::internal)??;
    Ok(HttpResponse::Ok().json(answer))
}
