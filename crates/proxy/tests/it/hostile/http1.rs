//! Hostile peers over HTTP/1.1: clients and replicas, as bytes.

mod clients;
mod replicas;

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    clients::ROWS.iter().map(|row| row.name).chain(replicas::ROWS.iter().map(|row| row.name))
}

/// Bytes to send, each with the number of times.
type Parts = &'static [(&'static str, usize)];

/// Writes of at least this size, so that a peer is faster than the proxy.
const WRITE_BYTES: usize = 64 << 10;

/// Sends the parts; fails when the proxy has closed the connection.
async fn send(
    writer: &mut (impl tokio::io::AsyncWrite + Unpin),
    parts: Parts,
) -> std::io::Result<()> {
    use tokio::io::AsyncWriteExt as _;
    for (text, times) in parts {
        let together = WRITE_BYTES.div_ceil(text.len()).min(*times);
        let unit = text.repeat(together);
        for _ in 0..times.div_ceil(together) {
            writer.write_all(unit.as_bytes()).await?;
        }
    }
    writer.flush().await
}
