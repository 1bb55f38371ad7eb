//! A name server on loopback: its records can change while it runs, and it fails on command.
//!
//! It responds with authority, over UDP and TCP on one port. A name without records does not exist (NXDOMAIN).
//! **Limits**: one question in a query; no zones, no wildcards, no EDNS. An alias is followed once.

use crate::running::StartError;
use curtail_http::runtime_thread::RuntimeThread;
use curtail_units::Duration;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, SOA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;

/// Maximum length of a query over UDP; a longer one is cut, and malformed.
const QUERY_LEN_MAX: usize = 1_232;

/// A record of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameRecord {
    /// A or AAAA: an address of the name.
    Address(IpAddr),
    /// CNAME: the name has the records of another name.
    Alias(String),
    /// SRV: a server of a service.
    Server {
        /// Servers with the lowest value are to be used.
        priority: u16,
        /// The share of a server, relative to others of its priority.
        weight: u16,
        /// The port of the server.
        port: u16,
        /// The name of the server.
        target: String,
    },
}

/// The way in which a name server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameServerFault {
    /// Every response is SERVFAIL.
    Fails,
    /// Responses to queries for AAAA records are SERVFAIL.
    FailsForIpv6,
    /// There is no response.
    Silent,
    /// Each response comes after this time.
    Slow(Duration),
    /// Responses over UDP have no records, and point to TCP.
    Truncates,
}

/// A name server that runs until it is dropped.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    _thread: RuntimeThread,
}

#[derive(Debug)]
struct Shared {
    zone: Mutex<Zone>,
    /// The number of queries that have arrived.
    queries: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Zone {
    /// The records of each name, with their time to live in seconds.
    names: BTreeMap<Name, (u32, Vec<NameRecord>)>,
    /// The time for which "no records" is valid, in seconds.
    negative_ttl: u32,
    fault: Option<NameServerFault>,
    log: Vec<(String, String)>,
}

impl NameServer {
    /// Starts a name server without records, on 127.0.0.1 and a port of the system's choice.
    ///
    /// # Errors
    /// When no port can be listened on, or the system gives no thread.
    pub fn start() -> Result<Self, StartError> {
        let thread = RuntimeThread::start("names").map_err(StartError::of("no thread"))?;
        let entered = thread.runtime().enter();
        let (udp, tcp) = bind().map_err(StartError::of("the name server cannot listen"))?;
        let address = udp.local_addr().map_err(StartError::of("no address"))?;
        let (queries, _) = watch::channel(0);
        let shared = Arc::new(Shared { zone: Mutex::default(), queries });
        tokio::spawn(serve_udp(Arc::new(udp), Arc::clone(&shared)));
        tokio::spawn(serve_tcp(tcp, Arc::clone(&shared)));
        drop(entered);
        Ok(Self { address, shared, _thread: thread })
    }

    /// The address of the name server.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the records of a name, with their time to live; without records, the name does not exist.
    ///
    /// # Panics
    /// When a name is not a domain name.
    pub fn set(&self, name: &str, ttl_seconds: u32, records: &[NameRecord]) {
        let mut zone = self.shared.zone();
        if records.is_empty() {
            zone.names.remove(&absolute(name));
        } else {
            zone.names.insert(absolute(name), (ttl_seconds, records.to_vec()));
        }
    }

    /// Sets the time for which "no records" is valid; 0 at first.
    pub fn set_negative_ttl(&self, seconds: u32) {
        self.shared.zone().negative_ttl = seconds;
    }

    /// Fails in this way from now on; [`None`]: not at all.
    pub fn set_fault(&self, fault: Option<NameServerFault>) {
        self.shared.zone().fault = fault;
    }

    /// The number of queries so far, also of those without a response.
    #[must_use]
    pub fn queries(&self) -> watch::Receiver<u64> {
        self.shared.queries.subscribe()
    }

    /// The number of queries for a name and type such as `AAAA`.
    #[must_use]
    pub fn queries_for(&self, name: &str, record_type: &str) -> usize {
        let name = absolute(name).to_string();
        let zone = self.shared.zone();
        zone.log.iter().filter(|(of, kind)| *of == name && kind == record_type).count()
    }
}

impl Shared {
    fn zone(&self) -> MutexGuard<'_, Zone> {
        self.zone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits as long as the fault wants, and returns the response, if there is one.
    async fn respond(&self, query: &[u8], is_udp: bool) -> Option<Vec<u8>> {
        let query = Message::from_vec(query).ok()?;
        let (response, fault) = {
            let mut zone = self.zone();
            (zone.respond(query, is_udp)?, zone.fault)
        };
        self.queries.send_modify(|count| *count += 1);
        match fault {
            Some(NameServerFault::Silent) => return None,
            Some(NameServerFault::Slow(delay)) => tokio::time::sleep(delay.into()).await,
            _ => {}
        }
        response.to_vec().ok()
    }
}

impl Zone {
    fn respond(&mut self, query: Message, is_udp: bool) -> Option<Message> {
        let question = query.queries.first()?.clone();
        let (name, kind) = (question.name().to_lowercase(), question.query_type());
        self.log.push((name.to_string(), kind.to_string()));
        let mut response = Message::response(query.metadata.id, query.metadata.op_code);
        response.metadata.recursion_desired = query.metadata.recursion_desired;
        response.metadata.authoritative = true;
        response.add_query(question);
        let fails = match self.fault {
            Some(NameServerFault::Fails) => true,
            Some(NameServerFault::FailsForIpv6) => kind == RecordType::AAAA,
            _ => false,
        };
        if fails {
            response.metadata.response_code = ResponseCode::ServFail;
        } else if is_udp && self.fault == Some(NameServerFault::Truncates) {
            response.metadata.truncation = true;
        } else {
            self.answer(&mut response, &name, kind);
        }
        Some(response)
    }

    fn answer(&self, response: &mut Message, name: &Name, kind: RecordType) {
        if !self.names.contains_key(name) {
            response.metadata.response_code = ResponseCode::NXDomain;
        }
        for record in self.records(name, None) {
            if let RData::CNAME(CNAME(target)) = &record.data {
                response.add_answers(self.records(target, Some(kind)));
            }
            if [kind, RecordType::CNAME].contains(&record.record_type()) {
                response.answers.insert(0, record);
            }
        }
        if response.answers.is_empty() {
            let (zone, ttl) = (Name::root(), self.negative_ttl);
            let soa = SOA::new(zone.clone(), zone.clone(), 1, 1, 1, 1, ttl);
            response.add_authority(Record::from_rdata(zone, ttl, RData::SOA(soa)));
        }
    }

    fn records(&self, name: &Name, kind: Option<RecordType>) -> Vec<Record> {
        let Some((ttl, records)) = self.names.get(name) else { return Vec::new() };
        let records = records.iter().map(|record| {
            let data = match record {
                NameRecord::Address(address) => RData::from(*address),
                NameRecord::Alias(target) => RData::CNAME(CNAME(absolute(target))),
                NameRecord::Server { priority, weight, port, target } => {
                    RData::SRV(SRV::new(*priority, *weight, *port, absolute(target)))
                }
            };
            Record::from_rdata(name.clone(), *ttl, data)
        });
        records.filter(|record| kind.is_none_or(|kind| record.record_type() == kind)).collect()
    }
}

fn absolute(name: &str) -> Name {
    let mut name = Name::from_ascii(name).expect("a domain name").to_lowercase();
    name.set_fqdn(true);
    name
}

/// Binds a port that both protocols have free.
fn bind() -> io::Result<(UdpSocket, TcpListener)> {
    let nonblocking = |tcp: std::net::TcpListener, udp: std::net::UdpSocket| {
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        Ok((UdpSocket::from_std(udp)?, TcpListener::from_std(tcp)?))
    };
    loop {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0")?;
        match std::net::UdpSocket::bind(tcp.local_addr()?) {
            Ok(udp) => return nonblocking(tcp, udp),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}

async fn serve_udp(socket: Arc<UdpSocket>, shared: Arc<Shared>) {
    let mut buffer = vec![0; QUERY_LEN_MAX];
    loop {
        // An earlier response to a closed port makes a receive fail.
        let Ok((len, from)) = socket.recv_from(&mut buffer).await else { continue };
        let (query, socket, shared) =
            (buffer[..len].to_vec(), Arc::clone(&socket), Arc::clone(&shared));
        tokio::spawn(async move {
            if let Some(response) = shared.respond(&query, true).await {
                socket.send_to(&response, from).await.ok();
            }
        });
    }
}

async fn serve_tcp(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move { serve_connection(stream, &shared).await.ok() });
    }
}

/// Each message over TCP has its length before it (RFC 1035, section 4.2.2).
async fn serve_connection(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    loop {
        let mut query = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut query).await?;
        if let Some(response) = shared.respond(&query, false).await {
            let len = u16::try_from(response.len()).map_err(io::Error::other)?;
            stream.write_u16(len).await?;
            stream.write_all(&response).await?;
        }
    }
}
