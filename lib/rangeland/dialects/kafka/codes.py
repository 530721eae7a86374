"""Kafka's error codes, one line each: what a number is called and what follows from it.

The verdict is a reader's: codes that only writers and administrators see are listed so that
an error can name them. Names and numbers are those of Errors.java, as of Kafka 4.1.
A number that is not listed is ``UNLISTED``; the loop treats it as it treats -1.

Three lines bite. 9 beside a valid leader, in metadata, is not a failure: a replica is down,
the leader is well. 100 and 103 both follow a topic that was deleted and made again: 100 is also
what a broker says that has not heard of a new topic yet; 103 says that the log has another id
than the request, of which either may be the newer. Ask for the id again and compare. 74 and 75
only mean that one side's idea of the leader is older than the other's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rangeland.dialects.verdicts import Verdict

_V = Verdict


@dataclass(frozen=True, slots=True)
class Code:
    """One line of the table. ``description`` is a phrase that completes "the broker says that"."""

    number: int
    name: str
    verdict: Verdict
    description: str


UNLISTED: Final = Code(-(2**15), "UNLISTED", _V.UNKNOWN, "something this table does not list")

# fmt: off
CODES: Final[tuple[Code, ...]] = (
    Code(-1, "UNKNOWN_SERVER_ERROR", _V.UNKNOWN, "it failed in a way it has no code for"),
    Code(0, "NONE", _V.OK, "all is well"),
    Code(1, "OFFSET_OUT_OF_RANGE", _V.OUT_OF_RANGE, "the log does not hold this offset"),
    Code(2, "CORRUPT_MESSAGE", _V.CORRUPT, "the record is damaged, too large, or lacks its key"),
    Code(3, "UNKNOWN_TOPIC_OR_PARTITION", _V.FIND_LEADER, "it does not host this partition"),
    Code(4, "INVALID_FETCH_SIZE", _V.REFUSED, "the fetch size makes no sense"),
    Code(5, "LEADER_NOT_AVAILABLE", _V.FIND_LEADER, "a leader is being elected"),
    Code(6, "NOT_LEADER_OR_FOLLOWER", _V.FIND_LEADER, "it does not lead this partition"),
    Code(7, "REQUEST_TIMED_OUT", _V.RETRY, "the request took too long"),
    Code(8, "BROKER_NOT_AVAILABLE", _V.FIND_LEADER, "the broker is not there"),
    Code(9, "REPLICA_NOT_AVAILABLE", _V.FIND_LEADER, "a replica is down"),
    Code(10, "MESSAGE_TOO_LARGE", _V.REFUSED, "the record is larger than it takes"),
    Code(11, "STALE_CONTROLLER_EPOCH", _V.UNKNOWN, "the controller has moved"),
    Code(12, "OFFSET_METADATA_TOO_LARGE", _V.REFUSED, "the note beside an offset is too long"),
    Code(13, "NETWORK_EXCEPTION", _V.RETRY, "a connection broke before the answer"),
    Code(14, "COORDINATOR_LOAD_IN_PROGRESS", _V.RETRY, "the coordinator is still loading"),
    Code(15, "COORDINATOR_NOT_AVAILABLE", _V.FIND_LEADER, "there is no coordinator now"),
    Code(16, "NOT_COORDINATOR", _V.FIND_LEADER, "it does not coordinate this group"),
    Code(17, "INVALID_TOPIC_EXCEPTION", _V.REFUSED, "the topic name is not allowed"),
    Code(18, "RECORD_LIST_TOO_LARGE", _V.REFUSED, "the batch is larger than a segment"),
    Code(19, "NOT_ENOUGH_REPLICAS", _V.RETRY, "too few replicas are in sync to write"),
    Code(20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", _V.RETRY, "too few replicas took the write"),
    Code(21, "INVALID_REQUIRED_ACKS", _V.REFUSED, "the number of acknowledgements is not allowed"),
    Code(22, "ILLEGAL_GENERATION", _V.REJOIN, "the group has moved on to another generation"),
    Code(23, "INCONSISTENT_GROUP_PROTOCOL", _V.REFUSED, "the group uses another protocol"),
    Code(24, "INVALID_GROUP_ID", _V.REFUSED, "the group id is not allowed"),
    Code(25, "UNKNOWN_MEMBER_ID", _V.REJOIN, "the group does not know this member"),
    Code(26, "INVALID_SESSION_TIMEOUT", _V.REFUSED, "the session timeout is outside its limits"),
    Code(27, "REBALANCE_IN_PROGRESS", _V.REJOIN, "the group is sharing out anew"),
    Code(28, "INVALID_COMMIT_OFFSET_SIZE", _V.REFUSED, "the commit is too large"),
    Code(29, "TOPIC_AUTHORIZATION_FAILED", _V.REFUSED, "we have no right to this topic"),
    Code(30, "GROUP_AUTHORIZATION_FAILED", _V.REFUSED, "we have no right to this group"),
    Code(31, "CLUSTER_AUTHORIZATION_FAILED", _V.REFUSED, "we have no right to the cluster"),
    Code(32, "INVALID_TIMESTAMP", _V.REFUSED, "the record's time is outside its limits"),
    Code(33, "UNSUPPORTED_SASL_MECHANISM", _V.UNSUPPORTED, "the SASL mechanism is not enabled"),
    Code(34, "ILLEGAL_SASL_STATE", _V.REFUSED, "SASL is not at the step of this request"),
    Code(35, "UNSUPPORTED_VERSION", _V.UNSUPPORTED, "it does not speak this version"),
    Code(36, "TOPIC_ALREADY_EXISTS", _V.REFUSED, "the topic is there already"),
    Code(37, "INVALID_PARTITIONS", _V.REFUSED, "the number of partitions is not allowed"),
    Code(38, "INVALID_REPLICATION_FACTOR", _V.REFUSED, "the number of replicas is not allowed"),
    Code(39, "INVALID_REPLICA_ASSIGNMENT", _V.REFUSED, "the placing of replicas is not allowed"),
    Code(40, "INVALID_CONFIG", _V.REFUSED, "a setting is not allowed"),
    Code(41, "NOT_CONTROLLER", _V.UNKNOWN, "it is not the controller"),
    Code(42, "INVALID_REQUEST", _V.REFUSED, "the request makes no sense to it"),
    Code(43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", _V.UNSUPPORTED, "stored records are too old for it"),
    Code(44, "POLICY_VIOLATION", _V.REFUSED, "a policy of the cluster forbids it"),
    Code(45, "OUT_OF_ORDER_SEQUENCE_NUMBER", _V.REFUSED, "a producer's sequence has a gap"),
    Code(46, "DUPLICATE_SEQUENCE_NUMBER", _V.REFUSED, "a producer's sequence repeats"),
    Code(47, "INVALID_PRODUCER_EPOCH", _V.REFUSED, "the producer's epoch is old"),
    Code(48, "INVALID_TXN_STATE", _V.REFUSED, "the transaction is not at this step"),
    Code(49, "INVALID_PRODUCER_ID_MAPPING", _V.REFUSED, "the producer id is not this writer's"),
    Code(50, "INVALID_TRANSACTION_TIMEOUT", _V.REFUSED, "the transaction timeout is too long"),
    Code(51, "CONCURRENT_TRANSACTIONS", _V.RETRY, "the last transaction is still being ended"),
    Code(52, "TRANSACTION_COORDINATOR_FENCED", _V.REFUSED, "another coordinator has taken over"),
    Code(53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", _V.REFUSED, "we may not use this writer id"),
    Code(54, "SECURITY_DISABLED", _V.REFUSED, "security is switched off"),
    Code(55, "OPERATION_NOT_ATTEMPTED", _V.RETRY, "it gave up before this part of the request"),
    Code(56, "KAFKA_STORAGE_ERROR", _V.FIND_LEADER, "its disk failed, and another may lead soon"),
    Code(57, "LOG_DIR_NOT_FOUND", _V.REFUSED, "it has no such log directory"),
    Code(58, "SASL_AUTHENTICATION_FAILED", _V.REFUSED, "name or password were not accepted"),
    Code(59, "UNKNOWN_PRODUCER_ID", _V.REFUSED, "it has forgotten this producer"),
    Code(60, "REASSIGNMENT_IN_PROGRESS", _V.REFUSED, "partitions are being moved"),
    Code(61, "DELEGATION_TOKEN_AUTH_DISABLED", _V.REFUSED, "delegation tokens are switched off"),
    Code(62, "DELEGATION_TOKEN_NOT_FOUND", _V.REFUSED, "it does not know this token"),
    Code(63, "DELEGATION_TOKEN_OWNER_MISMATCH", _V.REFUSED, "the token is somebody else's"),
    Code(64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", _V.REFUSED, "tokens are not given out here"),
    Code(65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", _V.REFUSED, "we have no right to the token"),
    Code(66, "DELEGATION_TOKEN_EXPIRED", _V.REFUSED, "the token has expired"),
    Code(67, "INVALID_PRINCIPAL_TYPE", _V.REFUSED, "that kind of principal is not allowed"),
    Code(68, "NON_EMPTY_GROUP", _V.REFUSED, "the group has members"),
    Code(69, "GROUP_ID_NOT_FOUND", _V.REFUSED, "there is no such group"),
    Code(70, "FETCH_SESSION_ID_NOT_FOUND", _V.RETRY, "it has forgotten the fetch session"),
    Code(71, "INVALID_FETCH_SESSION_EPOCH", _V.RETRY, "the fetch session is out of step"),
    Code(72, "LISTENER_NOT_FOUND", _V.FIND_LEADER, "the leader has no listener of this name yet"),
    Code(73, "TOPIC_DELETION_DISABLED", _V.REFUSED, "topics must not be deleted"),
    Code(74, "FENCED_LEADER_EPOCH", _V.FIND_LEADER, "our leader epoch is older than its own"),
    Code(75, "UNKNOWN_LEADER_EPOCH", _V.FIND_LEADER, "our leader epoch is newer than its own"),
    Code(76, "UNSUPPORTED_COMPRESSION_TYPE", _V.UNSUPPORTED, "this version may not see the codec"),
    Code(77, "STALE_BROKER_EPOCH", _V.UNKNOWN, "the broker has registered anew"),
    Code(78, "OFFSET_NOT_AVAILABLE", _V.RETRY, "a new leader does not know its end yet"),
    Code(79, "MEMBER_ID_REQUIRED", _V.REJOIN, "we are to join with the id it gives us"),
    Code(80, "PREFERRED_LEADER_NOT_AVAILABLE", _V.RETRY, "the preferred leader is down"),
    Code(81, "GROUP_MAX_SIZE_REACHED", _V.REFUSED, "the group is full"),
    Code(82, "FENCED_INSTANCE_ID", _V.REFUSED, "another member has taken our instance id"),
    Code(83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", _V.FIND_LEADER, "nobody may lead now"),
    Code(84, "ELECTION_NOT_NEEDED", _V.OK, "the leader is the wanted one already"),
    Code(85, "NO_REASSIGNMENT_IN_PROGRESS", _V.REFUSED, "no partition is being moved"),
    Code(86, "GROUP_SUBSCRIBED_TO_TOPIC", _V.REFUSED, "the group is reading this topic"),
    Code(87, "INVALID_RECORD", _V.REFUSED, "it will not take this record"),
    Code(88, "UNSTABLE_OFFSET_COMMIT", _V.RETRY, "an open transaction holds the group's offset"),
    Code(89, "THROTTLING_QUOTA_EXCEEDED", _V.RETRY, "a quota is used up"),
    Code(90, "PRODUCER_FENCED", _V.REFUSED, "a newer producer has the same id"),
    Code(91, "RESOURCE_NOT_FOUND", _V.REFUSED, "there is no such thing"),
    Code(92, "DUPLICATE_RESOURCE", _V.REFUSED, "the request names a thing twice"),
    Code(93, "UNACCEPTABLE_CREDENTIAL", _V.REFUSED, "the credential is too weak"),
    Code(94, "INCONSISTENT_VOTER_SET", _V.UNKNOWN, "the voters do not agree who they are"),
    Code(95, "INVALID_UPDATE_VERSION", _V.REFUSED, "the update's version is not allowed"),
    Code(96, "FEATURE_UPDATE_FAILED", _V.UNKNOWN, "a feature could not be updated"),
    Code(97, "PRINCIPAL_DESERIALIZATION_FAILURE", _V.REFUSED, "a forwarded name was unreadable"),
    Code(98, "SNAPSHOT_NOT_FOUND", _V.UNKNOWN, "there is no such snapshot"),
    Code(99, "POSITION_OUT_OF_RANGE", _V.UNKNOWN, "the position is not in the snapshot"),
    Code(100, "UNKNOWN_TOPIC_ID", _V.FIND_LEADER, "it hosts no topic with this id"),
    Code(101, "DUPLICATE_BROKER_REGISTRATION", _V.UNKNOWN, "the broker id is taken"),
    Code(102, "BROKER_ID_NOT_REGISTERED", _V.UNKNOWN, "the broker id is not registered"),
    Code(103, "INCONSISTENT_TOPIC_ID", _V.RECREATED, "the log has another topic id"),
    Code(104, "INCONSISTENT_CLUSTER_ID", _V.REFUSED, "this is another cluster"),
    Code(105, "TRANSACTIONAL_ID_NOT_FOUND", _V.REFUSED, "there is no such writer id"),
    Code(106, "FETCH_SESSION_TOPIC_ID_ERROR", _V.RETRY, "a session mixed names and ids"),
    Code(107, "INELIGIBLE_REPLICA", _V.UNKNOWN, "a replica may not be in sync"),
    Code(108, "NEW_LEADER_ELECTED", _V.FIND_LEADER, "another leader was elected"),
    Code(109, "OFFSET_MOVED_TO_TIERED_STORAGE", _V.UNSUPPORTED, "the offset is in a remote tier"),
    Code(110, "FENCED_MEMBER_EPOCH", _V.REJOIN, "the member's epoch is old"),
    Code(111, "UNRELEASED_INSTANCE_ID", _V.RETRY, "another member still has our instance id"),
    Code(112, "UNSUPPORTED_ASSIGNOR", _V.UNSUPPORTED, "the group does not know this assignor"),
    Code(113, "STALE_MEMBER_EPOCH", _V.REJOIN, "the member has not seen its new epoch yet"),
    Code(114, "MISMATCHED_ENDPOINT_TYPE", _V.REFUSED, "this port is of another kind"),
    Code(115, "UNSUPPORTED_ENDPOINT_TYPE", _V.UNSUPPORTED, "it has no ports of that kind"),
    Code(116, "UNKNOWN_CONTROLLER_ID", _V.UNKNOWN, "there is no such controller"),
    Code(117, "UNKNOWN_SUBSCRIPTION_ID", _V.UNKNOWN, "the telemetry subscription is old"),
    Code(118, "TELEMETRY_TOO_LARGE", _V.REFUSED, "the telemetry is too large"),
    Code(119, "INVALID_REGISTRATION", _V.UNKNOWN, "the broker's registration is not valid"),
    Code(120, "TRANSACTION_ABORTABLE", _V.REFUSED, "the transaction must be aborted"),
    Code(121, "INVALID_RECORD_STATE", _V.REFUSED, "the record cannot be acknowledged"),
    Code(122, "SHARE_SESSION_NOT_FOUND", _V.UNKNOWN, "there is no such share session"),
    Code(123, "INVALID_SHARE_SESSION_EPOCH", _V.UNKNOWN, "the share session is out of step"),
    Code(124, "FENCED_STATE_EPOCH", _V.UNKNOWN, "the share state's epoch is old"),
    Code(125, "INVALID_VOTER_KEY", _V.UNKNOWN, "the voter's key is another's"),
    Code(126, "DUPLICATE_VOTER", _V.UNKNOWN, "the voter is there already"),
    Code(127, "VOTER_NOT_FOUND", _V.UNKNOWN, "there is no such voter"),
    Code(128, "INVALID_REGULAR_EXPRESSION", _V.REFUSED, "the pattern cannot be read"),
    Code(129, "REBOOTSTRAP_REQUIRED", _V.FIND_LEADER, "our metadata is void: ask the seeds again"),
    Code(130, "STREAMS_INVALID_TOPOLOGY", _V.REFUSED, "the streams topology is not valid"),
    Code(131, "STREAMS_INVALID_TOPOLOGY_EPOCH", _V.REFUSED, "the topology's epoch is not valid"),
    Code(132, "STREAMS_TOPOLOGY_FENCED", _V.REFUSED, "the topology's epoch is old"),
    Code(133, "SHARE_SESSION_LIMIT_REACHED", _V.RETRY, "it has too many share sessions"),
)
# fmt: on

_BY_NUMBER: Final = {code.number: code for code in CODES}


def judge(code: int) -> Code:
    """The line of the table for a number off the wire, ``UNLISTED`` where there is none."""
    return _BY_NUMBER.get(code, UNLISTED)
