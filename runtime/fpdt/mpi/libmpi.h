// Open MPI, as this library calls it. The first call of `libmpi` loads it. A build needs only its
// headers, and a program that does not use processes starts without it.
#pragma once

#include <mpi.h>

#include "fpdt/runtime/library.h"

namespace fpdt {

// Functions, and the objects that are constants in a program that is linked to the library.
struct LibMpi {
  Library library;
  FPDT_FROM_LIBRARY(MPI_Abort);
  FPDT_FROM_LIBRARY(MPI_Allgather);
  FPDT_FROM_LIBRARY(MPI_Bcast);
  FPDT_FROM_LIBRARY(MPI_Cancel);
  FPDT_FROM_LIBRARY(MPI_Comm_dup);
  FPDT_FROM_LIBRARY(MPI_Comm_rank);
  FPDT_FROM_LIBRARY(MPI_Comm_set_errhandler);
  FPDT_FROM_LIBRARY(MPI_Comm_size);
  FPDT_FROM_LIBRARY(MPI_Comm_split_type);
  FPDT_FROM_LIBRARY(MPI_Error_string);
  FPDT_FROM_LIBRARY(MPI_Finalize);
  FPDT_FROM_LIBRARY(MPI_Get_library_version);
  FPDT_FROM_LIBRARY(MPI_Init_thread);
  FPDT_FROM_LIBRARY(MPI_Irecv);
  FPDT_FROM_LIBRARY(MPI_Isend);
  FPDT_FROM_LIBRARY(MPI_Test);
  FPDT_FROM_LIBRARY(MPI_Testsome);
  MPI_Comm world = library.find("ompi_mpi_comm_world");
  MPI_Comm no_communicator = library.find("ompi_mpi_comm_null");
  MPI_Datatype byte = library.find("ompi_mpi_byte");
  MPI_Errhandler errors_return = library.find("ompi_mpi_errors_return");
  MPI_Info no_info = library.find("ompi_mpi_info_null");
  MPI_Request no_request = library.find("ompi_request_null");
};

// Throws InputError when the library is missing or older than 4.1.
const LibMpi& libmpi();

// Throws InputError unless `version`, as MPI_Get_library_version gives it, is of Open MPI 4.1 or
// later.
void require_open_mpi(const char* version);

}  // namespace fpdt
