//! `POST /json`: a call in the JSON form of Envoy's rate limit service, for those who used the reference server's.
//! It is answered 200 or 429, and 400 whatever is wrong, as that one does.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use tidegate_core::store::Store;

use super::Door;
use super::guard::Refusal;
use crate::answer;
use crate::envoy::{Answer, AnswerView, Code, parse_json};
use crate::problem::Problem;
use crate::trace::{self, Serving};

impl<S: Store, L: Store> Door<S, L> {
    /// Answers a call. Only those who are admitted may give back, as with `/v1/refund`.
    pub(super) async fn envoy_call(
        &self,
        body: &[u8],
        admitted: Result<(), Refusal>,
        serving: Option<&Serving>,
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let wrong = |detail: String| Problem::new(StatusCode::BAD_REQUEST, detail);
        let call = parse_json(body).map_err(|malformed| Problem {
            status: StatusCode::BAD_REQUEST,
            ..Problem::from(malformed)
        })?;
        let checked = call.check().and_then(|()| call.check_units());
        checked.map_err(|invalid| wrong(invalid.to_string()))?;
        if let (true, Err(refusal)) = (call.gives_back(), admitted) {
            return Ok(refusal.into_response());
        }
        let deciding = serving.and_then(Serving::decides);
        let decided = self.envoy.decide(&call).await;
        let decided = decided.map_err(|unanswered| wrong(unanswered.to_string()))?;
        trace::decided(deciding, decided.decisions());
        let told = Answer::of(&decided);
        let status = match told.overall_code() {
            Code::Ok => StatusCode::OK,
            Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        };
        Ok(answer::json(status, &AnswerView(&told)))
    }
}
