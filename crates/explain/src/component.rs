//! Components: the kinds of time that a critical path consists of.

use crate::interner::Interner;

/// A kind of time, by the numbers of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Component {
    /// An operation of a service works, or waits for something that has no span.
    SelfTime { service: u32, operation: u32 },
    /// A call is between its caller and the service called: network, queue, proxy, serialization.
    Gap { caller: u32, callee: u32, operation: u32 },
    /// A call of a service without spans. Not `is_client`: its span does not say that it is a call.
    UntracedCall { caller: u32, operation: u32, is_client: bool },
    /// A phase of a call or an operation, whose duration is an attribute or a span below that of the call.
    Phase { service: u32, phase: Phase },
}

/// The components of all traces.
pub(crate) type Components = Interner<Component>;

/// A phase of a call or an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The lookup of a name.
    Lookup,
    /// The opening of a TCP connection.
    Connect,
    /// The TLS handshake.
    Handshake,
    /// The wait in a queue of the server, or for a connection of a pool.
    Queue,
}

impl Phase {
    /// The phases, each with the attribute that has its duration in nanoseconds.
    pub const ATTRIBUTES: [(&'static str, Self); 4] = [
        ("curtail.connect.lookup_ns", Self::Lookup),
        ("curtail.connect.tcp_ns", Self::Connect),
        ("curtail.connect.tls_ns", Self::Handshake),
        ("curtail.leaf.wait_ns", Self::Queue),
    ];

    /// The phase of a call that a span stands for, by the names that the instrumentation of Go (`otelhttptrace`) and of
    /// Node.js (`instrumentation-net`, `instrumentation-dns`) has for them. Absent inside: the time of a message.
    pub(crate) fn of_span(operation: &str) -> Option<Option<Self>> {
        match operation {
            "http.dns" | "dns.lookup" => Some(Some(Self::Lookup)),
            "http.connect" | "tcp.connect" => Some(Some(Self::Connect)),
            "http.tls" | "tls.connect" => Some(Some(Self::Handshake)),
            "http.getconn" => Some(Some(Self::Queue)),
            "http.headers" | "http.send" | "http.receive" => Some(None),
            _ => None,
        }
    }

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lookup => "DNS lookup",
            Self::Connect => "TCP connect",
            Self::Handshake => "TLS handshake",
            Self::Queue => "queue",
        }
    }
}

impl Component {
    /// The same component with another operation.
    pub(crate) const fn with_operation(self, operation: u32) -> Self {
        match self {
            Self::SelfTime { service, .. } => Self::SelfTime { service, operation },
            Self::Gap { caller, callee, .. } => Self::Gap { caller, callee, operation },
            Self::UntracedCall { caller, is_client, .. } => {
                Self::UntracedCall { caller, operation, is_client }
            }
            Self::Phase { .. } => self,
        }
    }

    /// The service that is charged for the time.
    pub(crate) const fn service(self) -> u32 {
        match self {
            Self::SelfTime { service, .. } | Self::Phase { service, .. } => service,
            Self::Gap { callee, .. } => callee,
            Self::UntracedCall { caller, .. } => caller,
        }
    }
}
