//! Clones request bodies, because a call that is sent a second time needs a second body.

/// Clones request bodies for retries.
///
/// ```
/// use tidegate_client::{CloneBody, CloneBodies, NoBodyClones};
///
/// assert_eq!(CloneBodies.clone_body(&"text"), Some("text"));
/// assert_eq!(NoBodyClones.clone_body(&"text"), None);
/// ```
pub trait CloneBody<B> {
    /// A second body with the same content; `None` if there cannot be one.
    fn clone_body(&self, body: &B) -> Option<B>;
}

/// Clones no body, so that no call is retried.
///
/// ```
/// use tidegate_client::{ClientLayer, NoBodyClones};
///
/// let layer: ClientLayer<NoBodyClones> = ClientLayer::new();
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBodyClones;

/// Clones bodies with [`Clone`], such as `Full<Bytes>` and `String`.
///
/// ```
/// use tidegate_client::{ClientLayer, CloneBodies};
///
/// let layer: ClientLayer<CloneBodies> = ClientLayer::new().clone_bodies();
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneBodies;

/// Clones bodies with a function, such as one for the body of reqwest.
///
/// ```
/// use tidegate_client::{ClientLayer, CloneBodiesWith};
///
/// fn clone_text(body: &String) -> Option<String> {
///     (body.len() < 1_000_000).then(|| body.clone())
/// }
/// let layer: ClientLayer<CloneBodiesWith<_>> = ClientLayer::new().clone_bodies_with(clone_text);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneBodiesWith<F>(pub(crate) F);

impl<B> CloneBody<B> for NoBodyClones {
    fn clone_body(&self, _: &B) -> Option<B> {
        None
    }
}

impl<B: Clone> CloneBody<B> for CloneBodies {
    fn clone_body(&self, body: &B) -> Option<B> {
        Some(body.clone())
    }
}

impl<B, F: Fn(&B) -> Option<B>> CloneBody<B> for CloneBodiesWith<F> {
    fn clone_body(&self, body: &B) -> Option<B> {
        (self.0)(body)
    }
}
