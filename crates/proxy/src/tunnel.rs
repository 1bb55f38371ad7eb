//! A client and a replica that have agreed to speak something else than HTTP: their bytes pass as they are.

use crate::answer::Ending;
use crate::leaf::Place;
use crate::stream::Stream;
use bytes::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;

/// What is known of the replica's side, until the client has been told.
#[derive(Debug)]
pub(crate) struct Tunnel {
    replica: OnUpgrade,
    ending: Ending,
    /// At a leaf: in service until the tunnel is closed.
    _place: Option<Place>,
}

impl Tunnel {
    pub(crate) const fn new(replica: OnUpgrade, ending: Ending, place: Option<Place>) -> Self {
        Self { replica, ending, _place: place }
    }

    /// Carries bytes both ways until both sides have ended; `begun` has been read from the client already.
    pub(crate) async fn carry(mut self, mut client: Stream, begun: Bytes) {
        let carried = async {
            let mut replica = TokioIo::new(self.replica.await.map_err(std::io::Error::other)?);
            replica.write_all(&begun).await?;
            tokio::io::copy_bidirectional(&mut client, &mut replica).await
        };
        let whole = match carried.await {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!(%error, "connection with another protocol broke off");
                false
            }
        };
        self.ending.end(whole);
    }
}
